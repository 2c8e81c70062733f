/* The rollout's last row in linear time: P = R_T … R_1, R_t = (1 - λ_t) I + λ_t A_t, without forming a matrix.

   A classic script with one global, PosbiasEngine, because pages opened from disk may not load ES modules; it touches
   no document, and Node can require it. It computes what posbias computes in Python (posbias.rollout, and for
   logarithmic distances posbias.rollout.kernels.attention_kernel); tests/bookkit/test_explorer.py holds the two together within 1e-9.

   A head's kernel is A[i, j] ∝ k(i - j) beside the diagonal and e^d on it, over the keys that the mask allows, with
       k(x) = e^(-m x)        distance "linear": ALiBi, the decay mask, and no encoding (m = 0),
       k(x) = (1 + x)^(-m)    distance "log".
   Pushing a row vector v through the head average needs two tables for each different layer: own[i], the mean weight
   of a token on itself, and, for each rate q_r, gain_r[i], such that
       (v A)[j] = v[j] own[j] + Σ_r Σ_{i > j} v[i] gain_r[i] q_r^(i-1-j).
   The inner sums run from the last token to the first. Heads with one slope share a rate. A power of the distance is
   a sum of exponentials, from the trapezoidal rule for (1 + x)^(-m) = ∫ e^(m y - (1 + x) e^y) dy / Γ(m).

   Instead of a distance a kernel may have the ratio of the positions, counted from 1, in a causal mask only, as
   posbias.rollout.biased has it: logits α log j, one sum whose rate changes from key to key, and the flat kernel,
   1 / log(i / j) for j < i e^(-ε), a sum of exponentials in log(i / j), so of some 75 such sums.

   The law of untrained networks (posbias.rollout.untrained) adds squares over sets of layers. Where all heads and layers share one kernel
   the same sums give it; otherwise the Gram matrix of the gradients goes through every different head, n² numbers. */
(function (root) {
  "use strict";

  const LANES = 4; // rates that are summed together, so that one sum does not wait for the other
  const TINY = 1e-300; // added to running sums: numbers below the normal range are slow, and none is needed
  const SMALL = 1e-200; // the same where sums are multiplied once more
  const LARGE = 600; // e^600 outweighs all other keys by far and is a number still
  const TOLERANCE = 0.05; // how far above its lowest point a trough's bottom reaches, relatively
  const NEGLIGIBLE = 1e-17; // total probability of the hop counts that are left out
  const NEGLIGIBLE_SQUARE = 1e-30; // the same where the root is taken afterwards
  const MOST = 4e9; // operations that the law of untrained networks may take: seconds, and a page must not stand still for them
  const WIDEST = 2048; // tokens of a Gram matrix, 34 MB, of which three are needed
  const FLAT_STEP = 0.32; // of the trapezoidal rule for 1 / s: a relative error of 5e-13
  const FLAT_MERGED = 1e-4; // exponents up to this are one term, with an error of their cube
  const FLAT_FARTHEST = 34; // exponents from this on are left out: e^-34 of the whole
  const EULER = 0.57721566490153286;

  function refuse(field, expected, received) {
    const error = new RangeError(`${field}: expected ${expected}, received ${received}`);
    Object.assign(error, { field, expected, received: String(received) });
    return error;
  }

  /* ------------------------------------------------------------------ slopes and schedules */

  /** ALiBi's own slopes for H heads: 2^(-8h/H) for a power of two, otherwise filled up from twice as many. */
  function alibiSlopes(H) {
    const p = 2 ** Math.floor(Math.log2(H));
    const slopes = [];
    for (let h = 1; h <= p; h++) slopes.push(2 ** ((-8 * h) / p));
    for (let h = 1; slopes.length < H; h += 2) slopes.push(2 ** ((-4 * h) / p));
    return slopes;
  }

  /** 2^(-8h/H), h = 1..H: what the published configurations use for any number of heads. */
  function geometricSlopes(H) {
    return Array.from({ length: H }, (_, h) => 2 ** ((-8 * (h + 1)) / H));
  }

  function constantMixing(T, lambda) {
    return checkedMixing("lambda", new Array(T).fill(lambda));
  }

  /** λ_t = λ_0 t^(-β), t = 1..T. */
  function decayingMixing(T, lambda0, beta) {
    return checkedMixing("lambda0", Array.from({ length: T }, (_, t) => lambda0 * (t + 1) ** -beta));
  }

  function checkedMixing(field, lambda) {
    if (lambda.length < 1) throw refuse(field, "at least one layer", "none");
    for (const x of lambda) if (!(x >= 0 && x <= 1)) throw refuse(field, "numbers from 0 to 1", x);
    return lambda;
  }

  /* ------------------------------------------------------------------ the profile */

  /** The last row of P.
      settings: n (tokens), lambda (T numbers, first layer first), distance ("linear" or "log"), slopes (H numbers ≥ 0),
      diagonal (a number, or 1 or T rows of 1 or H numbers), mask ({kind: "full" | "causal" | "window" | "prefix", width}),
      and in place of slopes bias ({kind: "log", alpha} or {kind: "flat", tau}), with slopes 0 and a causal mask. */
  function influenceProfile(settings) {
    const s = checked(settings);
    const memory = workspace(s);
    let v = new Float64Array(s.n);
    v[s.n - 1] = 1;
    if (s.diagonal.length > 1) {
      for (let t = s.T - 1; t >= 0; t--) {
        const mixing = s.lambda[t];
        if (mixing === 0) continue;
        const pulled = pull(v, layerTables(s, s.diagonal[t], memory), s);
        for (let i = 0; i < s.n; i++) v[i] = (1 - mixing) * v[i] + mixing * pulled[i];
      }
      return v;
    }
    // one kernel in all layers: Σ_k w_k e A^k, w_k the probability of k attention hops
    const weights = hopDistribution(s.lambda);
    const total = new Float64Array(s.n);
    const tables = layerTables(s, s.diagonal[0], memory);
    for (let k = 0; k < weights.length; k++) {
      if (k > 0) v = pull(v, tables, s);
      for (let i = 0; i < s.n; i++) total[i] += weights[k] * v[i];
    }
    return total;
  }

  /** P(k attention hops), k = 0, 1, …, without the tail whose total is negligible. */
  function hopDistribution(lambda, negligible = NEGLIGIBLE) {
    let w = [1];
    for (const mixing of lambda) {
      const next = new Array(w.length + 1).fill(0);
      for (let k = 0; k < w.length; k++) {
        next[k] += (1 - mixing) * w[k];
        next[k + 1] += mixing * w[k];
      }
      w = next;
    }
    let tail = 0;
    while (w.length > 1 && tail + w[w.length - 1] < negligible) tail += w.pop();
    return w;
  }

  function checked(given) {
    const n = given.n;
    if (!Number.isInteger(n) || n < 1) throw refuse("n", "an integer of at least 1", n);
    const lambda = checkedMixing("lambda", Array.from(given.lambda));
    const T = lambda.length;
    const distance = given.distance || "linear";
    if (distance !== "linear" && distance !== "log") throw refuse("distance", "linear or log", distance);
    const slopes = Float64Array.from(given.slopes || [0]);
    const H = slopes.length;
    if (H < 1) throw refuse("slopes", "at least one head", "none");
    for (const m of slopes) if (!(m >= 0 && m <= 100)) throw refuse("slopes", "numbers from 0 to 100", m);
    const mask = given.mask || { kind: "causal" };
    if (!["full", "causal", "window", "prefix"].includes(mask.kind))
      throw refuse("mask", "full, causal, window or prefix", mask.kind);
    const sized = mask.kind === "window" || mask.kind === "prefix";
    if (sized && !(Number.isInteger(mask.width) && mask.width >= 1))
      throw refuse("width", "an integer of at least 1", mask.width);
    const size = {
      n,
      together: mask.kind === "full" ? n : mask.kind === "prefix" ? Math.min(mask.width, n) : 0,
      reach: mask.kind === "window" ? Math.min(mask.width - 1, n) : n,
    };
    const diagonal = rowsOf(given.diagonal === undefined ? 0 : given.diagonal, T, H);
    const bias = given.bias ? checkedBias(given.bias, slopes, mask) : null;
    const plain = { ...size, T, H, lambda, distance, diagonal, bias };
    if (!bias) return { ...plain, ...rates(slopes, distance, size) };
    const one = { unique: [0], groupOf: new Array(H).fill(0), first: Float64Array.of(0), coefficients: null };
    if (bias.kind === "log") return { ...plain, ...one, q: Float64Array.of(1), ...powersOfPositions(bias.alpha, n) };
    // a flat head hides its diagonal, and content with it
    const cutoff = exponentialIntegralInverse(bias.tau);
    return { ...plain, ...one, diagonal: [new Float64Array(H)], cutoff, ...flatExponentials(cutoff, n) };
  }

  function checkedBias(bias, slopes, mask) {
    if (bias.kind !== "log" && bias.kind !== "flat") throw refuse("bias.kind", "log or flat", bias.kind);
    if (bias.kind === "log" && !(bias.alpha > -1 && bias.alpha < 1000))
      throw refuse("bias.alpha", "a number above -1 and below 1000", bias.alpha);
    if (bias.kind === "flat" && !(bias.tau > 0 && bias.tau < 700))
      throw refuse("bias.tau", "a number above 0 and below 700", bias.tau);
    if (slopes.some((m) => m !== 0)) throw refuse("slopes", "0 with a bias", slopes.find((m) => m !== 0));
    if (mask.kind !== "causal") throw refuse("mask", "causal with a bias", mask.kind);
    return bias;
  }

  /** The diagonal as 1 or T rows of H numbers; rows that are all equal count as one. */
  function rowsOf(diagonal, T, H) {
    const rows = typeof diagonal === "number" ? [[diagonal]] : Array.from(diagonal);
    if (rows.length !== 1 && rows.length !== T) throw refuse("diagonal", `1 or ${T} rows`, rows.length);
    const wide = rows.map((row) => {
      if (row.length !== 1 && row.length !== H) throw refuse("diagonal", `rows of 1 or ${H} numbers`, row.length);
      const values = row.length === H ? Float64Array.from(row) : new Float64Array(H).fill(row[0]);
      for (const d of values) if (!Number.isFinite(d)) throw refuse("diagonal", "finite numbers", d);
      return values;
    });
    return wide.every((row) => row.every((d, h) => d === wide[0][h])) ? wide.slice(0, 1) : wide;
  }

  /** Groups of heads with one slope; for each the total weight that row i gives to other keys, relative to that of the
      nearest, k(1); and the exponentials that make up its k. */
  function rates(slopes, distance, { n, together, reach }) {
    const unique = Array.from(new Set(slopes));
    const groupOf = Array.from(slopes, (m) => unique.indexOf(m));
    const linear = distance === "linear";
    const seen = unique.map((m) => {
      const sum = new Float64Array(n + 1); // of the keys at distances 1..i
      const q = Math.exp(-m);
      for (let i = 1, k = 1; i <= n; i++, k *= q) sum[i] = sum[i - 1] + (linear ? k : ((1 + i) / 2) ** -m);
      return Float64Array.from({ length: n }, (_, i) => {
        const after = i < together ? sum[together - 1 - i] : 0;
        return sum[Math.min(i, reach)] + after;
      });
    });
    const first = Float64Array.from(unique, (m) => (linear ? -m : -m * Math.LN2)); // log k(1)
    const q = Float64Array.from(unique, (m) => Math.exp(-m));
    return { unique, groupOf, seen, first, ...(linear ? { q, coefficients: null } : powersAsExponentials(unique, n)) };
  }

  /** Rates q_r and coefficients c[r][g] with Σ_r c[r][g] q_r^(x-1) = ((1 + x) / 2)^(-m_g) for 1 ≤ x < n. */
  function powersAsExponentials(slopes, n) {
    const positive = slopes.filter((m) => m > 0);
    if (!positive.length) return { q: Float64Array.of(1), coefficients: [slopes.map(() => 1)] };
    const least = Math.min(...positive);
    const most = Math.max(...positive);
    let step = 0.36; // the rule's error falls like |Γ(m + 2πi/step)|
    const error = () => {
      const tau = (2 * Math.PI) / step;
      return (-Math.PI / 2) * tau + Math.max(most - 0.5, 0) * Math.log(tau) + 2 - logGamma(Math.max(most, 1));
    };
    while (error() > -32) step *= 0.97;
    const farthest = n; // 1 + x at the farthest key
    const low = -Math.log(farthest) - 31 / (1 + least); // below, exponentials differ by a constant only
    const high = Math.log(22 + 3 * most);
    const nodes = [];
    for (let y = high; y > low; y -= step) nodes.push(y);
    const q = Float64Array.from([1, ...nodes.map((y) => Math.exp(-Math.exp(y)))]);
    const columns = slopes.map((m) => {
      if (m === 0) return [1, ...nodes.map(() => 0)];
      const scale = Math.log(step) - logGamma(m) + m * Math.LN2;
      const c = nodes.map((y) => Math.exp(scale + m * y - 2 * Math.exp(y)));
      let rest = (farthest / 2) ** -m; // the constant makes the farthest key exact
      nodes.forEach((y, r) => (rest -= c[r] * Math.exp(-Math.exp(y) * (farthest - 2))));
      return [rest, ...c];
    });
    return { q, coefficients: Array.from(q, (_, r) => columns.map((column) => column[r])) };
  }

  /** log Γ(x) for x > 0 (Lanczos, g = 7, relative error about 1e-15). */
  function logGamma(x) {
    if (x < 0.5) return Math.log(Math.PI / Math.sin(Math.PI * x)) - logGamma(1 - x);
    const c = [
      0.99999999999980993, 676.5203681218851, -1259.1392167224028, 771.32342877765313,
      -176.61502916214059, 12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7,
    ];
    const z = x - 1;
    let sum = c[0];
    for (let k = 1; k < 9; k++) sum += c[k] / (z + k);
    const t = z + 7.5;
    return 0.5 * Math.log(2 * Math.PI) + (z + 0.5) * Math.log(t) - t + Math.log(sum);
  }

  /* ------------------------------------------------------------------ ratios of positions */

  /** The ratios (j / (j + 1))^α, by which a sum over queries goes from key j + 1 to key j, and for each query the
      weight of the keys before it, relative to its own without content. */
  function powersOfPositions(alpha, n) {
    const ratio = Float64Array.from({ length: n }, (_, j) => Math.exp(-alpha * Math.log1p(1 / (j + 1))));
    const seen = new Float64Array(n);
    for (let i = 1; i < n; i++) seen[i] = (seen[i - 1] + 1) * ratio[i - 1];
    return { ratio, seen: [seen] };
  }

  /** E₁(x) = ∫_x^∞ e^-s / s ds, x > 0: the series up to 1, then the continued fraction. */
  function exponentialIntegral(x) {
    if (x <= 1) {
      let sum = 0;
      for (let k = 1, term = 1; k < 25; k++) {
        term *= -x / k;
        sum -= term / k;
      }
      return sum - EULER - Math.log(x);
    }
    let fraction = 0;
    for (let k = 400; k >= 1; k--) fraction = (k * k) / (x + 2 * k + 1 - fraction);
    return Math.exp(-x) / (x + 1 - fraction);
  }

  /** The ε > 0 with E₁(ε) = τ: Newton's steps in log ε, within a bracket that they narrow. */
  function exponentialIntegralInverse(tau) {
    let [low, high] = [-tau - 1, 6.6];
    let y = Math.min(Math.max(-EULER - tau, low), high);
    for (let k = 0; k < 100; k++) {
      const x = Math.exp(y);
      const gap = exponentialIntegral(x) - tau;
      if (gap > 0) low = y;
      else high = y;
      const step = gap / Math.exp(-x);
      let next = y + step;
      if (!(next > low && next < high)) next = (low + high) / 2;
      if (Math.abs(next - y) <= 1e-15 * Math.abs(y)) return Math.exp(next);
      y = next;
    }
    return Math.exp(y);
  }

  /** Exponents x_r, as q, and weights ω_r with Σ_r ω_r e^(-s x_r) = 1 / s for every log-distance s that is seen. */
  function flatExponentials(cutoff, n) {
    const farthest = Math.log(Math.max(n, 2));
    const nearest = Math.max(cutoff, -Math.log1p(-1 / Math.max(n, 2)));
    const low = Math.log(FLAT_MERGED / farthest);
    const nodes = [];
    for (let y = low; y < Math.log(FLAT_FARTHEST / nearest); y += FLAT_STEP) nodes.push(Math.exp(y));
    // all nodes below those, a geometric series, as one term of the same weight and mean
    const below = Math.exp(low - FLAT_STEP);
    const weight = (FLAT_STEP * below) / -Math.expm1(-FLAT_STEP);
    const mean = (FLAT_STEP * below ** 2) / -Math.expm1(-2 * FLAT_STEP) / weight;
    return { q: Float64Array.from([mean, ...nodes]), omega: Float64Array.from([weight, ...nodes.map((x) => FLAT_STEP * x)]) };
  }

  let flatKept = { key: "" }; // tables cost as much as ten layers: while other sliders move they stay

  /** What a vector goes through a flat kernel with: seen[i], how many keys query i sees, from the first on, and for
      each exponent x the factors step = (j / (j + 1))^x from key to key and enter = ω (seen / i)^x / Σ_j 1 / log(i / j)
      from a query to its last key. Values of exponent r stand as the gains of rate r do. */
  function flatTables(s) {
    const { n, q, omega, cutoff } = s;
    const key = `${n} ${s.bias.tau}`;
    if (flatKept.key === key) return flatKept;
    const near = Math.exp(-cutoff);
    const seen = Int32Array.from({ length: n }, (_, i) => Math.ceil((i + 1) * near) - 1);
    const blocks = Math.ceil(q.length / LANES);
    const step = new Float64Array(blocks * LANES * n);
    const enter = new Float64Array(blocks * LANES * n);
    const sums = new Float64Array(n);
    const between = Float64Array.from({ length: n }, (_, j) => -Math.log1p(1 / (j + 1)));
    const entering = Float64Array.from(seen, (c, i) => (c ? Math.log(c / (i + 1)) : 0));
    for (let r = 0; r < q.length; r++) {
      const base = Math.floor(r / LANES) * n * LANES + (r % LANES);
      for (let i = 0, j = 0, upto = 0; i < n; i++) {
        const at = base + i * LANES;
        step[at] = Math.exp(between[i] * q[r]);
        if (seen[i] === 0) continue;
        for (; j < seen[i]; j++) upto = (j ? upto * step[base + (j - 1) * LANES] : 0) + 1;
        enter[at] = omega[r] * Math.exp(entering[i] * q[r]);
        sums[i] += enter[at] * upto;
      }
    }
    for (let block = 0; block < blocks; block++)
      for (let i = 0, at = block * n * LANES; i < n; i++, at += LANES)
        for (let lane = 0; lane < LANES; lane++) if (sums[i] > 0) enter[at + lane] /= sums[i];
    flatKept = { key, flat: true, seen, step, enter };
    return flatKept;
  }

  /** The row vector v A of a flat kernel; queries that see no key see themselves alone. */
  function pullFlat(v, { seen, step, enter }, { n, q }) {
    const out = Float64Array.from(v, (x, i) => (seen[i] ? 0 : x));
    for (let block = 0; block * LANES < q.length; block++) {
      const base = block * n * LANES;
      let ra = 0, rb = 0, rc = 0, rd = 0;
      for (let i = n - 1, j = seen[n - 1]; j > 0; j--) {
        let at = base + (j - 1) * LANES; // key j has index j - 1
        ra = ra * step[at] + TINY;
        rb = rb * step[at + 1] + TINY;
        rc = rc * step[at + 2] + TINY;
        rd = rd * step[at + 3] + TINY;
        for (; seen[i] === j; i--) {
          const x = v[i];
          const from = base + i * LANES;
          ra += enter[from] * x;
          rb += enter[from + 1] * x;
          rc += enter[from + 2] * x;
          rd += enter[from + 3] * x;
        }
        out[j - 1] += ra + rb + (rc + rd);
      }
    }
    for (let i = 0; i < n; i++) if (out[i] < 1e-290) out[i] = 0;
    return out;
  }

  /** The mean position that the rollout tends to in long prompts: Π_t (1 - λ_t (1 - μ)), where an attention hop
      multiplies the position by μ on average. */
  function limitingMean(lambda, bias) {
    const cutoff = bias.kind === "flat" ? exponentialIntegralInverse(bias.tau) : 0;
    const hop = bias.kind === "log" ? (bias.alpha + 1) / (bias.alpha + 2) : exponentialIntegral(2 * cutoff) / bias.tau;
    return lambda.reduce((product, x) => product * (1 - x * (1 - hop)), 1);
  }

  /* ------------------------------------------------------------------ tables of one layer */

  /** Memory that every layer's tables use again. */
  function workspace(s) {
    if (s.cutoff) return flatTables(s);
    const rates = Math.ceil(s.q.length / LANES) * LANES;
    const groups = Math.ceil(s.unique.length / LANES) * LANES;
    const gain = new Float64Array(rates * s.n);
    const signed = s.distance === "linear"; // then keys after a query outweigh it, and have tables of their own
    return {
      own: new Float64Array(s.n),
      gain,
      byGroup: s.coefficients ? new Float64Array(groups * s.n) : gain,
      both: signed && s.together >= 2 ? keysBothWays(s) : null,
    };
  }

  /** Fill own[i] and the gains of a layer whose heads have these diagonals. Values of rate r, or group g, stand at
      [(block n + i) LANES + lane], r = block LANES + lane. Weights are relative to the nearest key's, k(1). */
  function layerTables(s, diagonal, memory) {
    if (memory.flat) return memory;
    const { n, H, together } = s;
    const share = 1 / H;
    const { own, byGroup, both } = memory;
    own.fill(0);
    byGroup.fill(0);
    const start = both ? together : 0;
    for (let h = 0; h < H; h++) {
      const g = s.groupOf[h];
      const self = Math.exp(Math.min(diagonal[h] - s.first[g], LARGE));
      const seen = s.seen[g];
      for (let i = start, at = (Math.floor(g / LANES) * n + start) * LANES + (g % LANES); i < n; i++, at += LANES) {
        const weight = share / (self + seen[i]);
        own[i] += self * weight;
        byGroup[at] += weight;
      }
    }
    if (together < 2) own[0] = 1; // the first token sees itself alone
    if (both) tablesBothWays(s, diagonal, own, both);
    if (s.coefficients) mixGroups(s, memory);
    return memory;
  }

  /** Gains of the exponentials from those of the groups: gain_r[i] = Σ_g c[r][g] byGroup_g[i]. */
  function mixGroups(s, { gain, byGroup }) {
    const { n, q, coefficients } = s;
    gain.fill(0);
    for (let block = 0; block * LANES < q.length; block++) {
      const rows = Array.from({ length: LANES }, (_, lane) => coefficients[block * LANES + lane]);
      for (let g = 0; g < s.unique.length; g++) {
        const [a, b, c, d] = rows.map((row) => (row ? row[g] : 0));
        let from = Math.floor(g / LANES) * n * LANES + (g % LANES);
        let at = block * n * LANES;
        for (let i = 0; i < n; i++, at += LANES, from += LANES) {
          const x = byGroup[from];
          gain[at] += a * x;
          gain[at + 1] += b * x;
          gain[at + 2] += c * x;
          gain[at + 3] += d * x;
        }
      }
    }
  }

  /** Rows that see one another, linear distances: key j then weighs e^(m (j - K + 1)) in every row alike, so that one
      sum over rows serves all keys; only a row's own key differs. */
  function keysBothWays(s) {
    const K = s.together;
    const keys = s.unique.map((m) => Float64Array.from({ length: K }, (_, j) => Math.exp(m * (j - K + 1))));
    return { keys, others: keys.map(sumOfOthers), gain: keys.map(() => new Float64Array(K)) };
  }

  function tablesBothWays(s, diagonal, own, { keys, others, gain }) {
    gain.forEach((x) => x.fill(0));
    for (let h = 0; h < s.H; h++) {
      const g = s.groupOf[h];
      const content = Math.exp(Math.min(diagonal[h], LARGE));
      for (let i = 0; i < s.together; i++) {
        const self = content * keys[g][i];
        const inverse = 1 / (s.H * (self + others[g][i]));
        own[i] += self * inverse;
        gain[g][i] += inverse;
      }
    }
  }

  /** Σ_{i ≠ j} x[i] for each j, as what stands before plus what stands after, so that nothing cancels. */
  function sumOfOthers(x) {
    const out = new Float64Array(x.length);
    let sum = 0;
    for (let j = 0; j < x.length; j++) {
      out[j] = sum;
      sum += x[j];
    }
    sum = 0;
    for (let j = x.length - 1; j >= 0; j--) {
      out[j] += sum;
      sum += x[j];
    }
    return out;
  }

  /* ------------------------------------------------------------------ one layer */

  /** The row vector v A. */
  function pull(v, tables, s) {
    const { n, together, reach } = s;
    if (tables.flat) return pullFlat(v, tables, s);
    const out = new Float64Array(n);
    for (let i = 0; i < n; i++) out[i] = v[i] * tables.own[i];
    const windowed = reach < n;
    const alone = together === n && tables.both; // then no row looks back only
    if (s.ratio) backwardsByRatio(v, tables.gain, out, s);
    else if (reach > 0 && !alone) backwards(v, tables.gain, out, s, windowed);
    if (together >= 2 && s.distance === "log") forwards(v, tables.gain, out, s);
    if (tables.both) {
      tables.both.keys.forEach((key, g) => addOthers(v, tables.both.gain[g], key, out));
    }
    if (windowed) {
      // only here were terms taken off: leave no rounding below 0 or beyond the window
      let last = 0;
      while (last < n && !(v[last] > 0)) last++;
      for (let i = 0; i < n; i++) if (i < last - reach || out[i] < 0) out[i] = 0;
    } else {
      for (let i = 0; i < n; i++) if (out[i] < 1e-290) out[i] = 0;
    }
    return out;
  }

  /** Add key[j] Σ_{i ≠ j} gain[i] v[i] to out[j]. */
  function addOthers(v, gain, key, out) {
    const K = key.length;
    let sum = 0;
    for (let j = 0; j < K; j++) {
      out[j] += key[j] * sum;
      sum += gain[j] * v[j];
    }
    sum = 0;
    for (let j = K - 1; j >= 0; j--) {
      out[j] += key[j] * sum;
      sum += gain[j] * v[j];
    }
  }

  function backwards(v, gain, out, s, windowed) {
    const { n, q, reach } = s;
    for (let block = 0; block * LANES < q.length; block++) {
      const [a, b, c, d] = lanesOf(q, block);
      const base = block * n * LANES;
      let ra = 0, rb = 0, rc = 0, rd = 0;
      if (!windowed) {
        for (let i = n - 1; i > 0; i--) {
          const at = base + i * LANES;
          const x = v[i];
          ra = ra * a + gain[at] * x + TINY;
          rb = rb * b + gain[at + 1] * x + TINY;
          rc = rc * c + gain[at + 2] * x + TINY;
          rd = rd * d + gain[at + 3] * x + TINY;
          out[i - 1] += ra + rb + (rc + rd);
        }
        continue;
      }
      const la = a ** reach, lb = b ** reach, lc = c ** reach, ld = d ** reach;
      for (let i = n - 1; i > 0; i--) {
        const at = base + i * LANES;
        const x = v[i];
        ra = ra * a + gain[at] * x + TINY;
        rb = rb * b + gain[at + 1] * x + TINY;
        rc = rc * c + gain[at + 2] * x + TINY;
        rd = rd * d + gain[at + 3] * x + TINY;
        if (i + reach < n) {
          const leaving = at + reach * LANES;
          const y = v[i + reach];
          ra -= la * gain[leaving] * y;
          rb -= lb * gain[leaving + 1] * y;
          rc -= lc * gain[leaving + 2] * y;
          rd -= ld * gain[leaving + 3] * y;
        }
        out[i - 1] += ra + rb + (rc + rd);
      }
    }
  }

  /** One sum whose rate changes from key to key. */
  function backwardsByRatio(v, gain, out, { n, ratio }) {
    for (let i = n - 1, sum = 0; i > 0; i--) {
      sum = (sum + gain[i * LANES] * v[i] + TINY) * ratio[i - 1];
      out[i - 1] += sum;
    }
  }

  /** Keys after the query, for logarithmic distances, among the rows that see one another. */
  function forwards(v, gain, out, s) {
    const { n, q, together } = s;
    for (let block = 0; block * LANES < q.length; block++) {
      const [a, b, c, d] = lanesOf(q, block);
      const base = block * n * LANES;
      let ra = 0, rb = 0, rc = 0, rd = 0;
      for (let i = 0; i < together - 1; i++) {
        const at = base + i * LANES;
        const x = v[i];
        ra = ra * a + gain[at] * x + TINY;
        rb = rb * b + gain[at + 1] * x + TINY;
        rc = rc * c + gain[at + 2] * x + TINY;
        rd = rd * d + gain[at + 3] * x + TINY;
        out[i + 1] += ra + rb + (rc + rd);
      }
    }
  }

  function lanesOf(q, block) {
    return Array.from({ length: LANES }, (_, lane) => q[block * LANES + lane] || 0);
  }

  /* ------------------------------------------------------------------ the law of untrained networks */

  /** The last row in squares, normalised: the root of Σ_S (Π_{t ∈ S} c_t²) ((e_nᵀ Π_{t ∈ S} A_t)_j)² over sets S of
      layers, c_t = λ_t / (1 - λ_t), where each of the H heads has a value map of its own, of gain c_t / √H.
      On the Gram matrix G of the gradients a layer is G ← (1 - s) G + s 𝓛G, 𝓛G = Σ_h A_hᵀ G A_h / H, up to a factor,
      with s = λ² / ((1 - λ)² + λ²): λ = 1 is a layer without a residual. Settings as influenceProfile's. */
  function untrainedProfile(settings) {
    return finished(untrainedSteps(settings));
  }

  /** The same in steps, for pages that must not stand still: yields the operations of each kernel it went through. */
  function* untrainedSteps(settings) {
    const s = checked(settings);
    const mixing = squaredMixing(s.lambda);
    if (!needsGram(s)) return byPowers(s, mixing);
    const n = s.n;
    const size = LANES * (2 * Math.floor(Math.ceil(n / LANES) / 2) + 1); // an odd multiple: columns share no cache set
    const rows = () => new Float64Array(LANES * n);
    const matrix = () => new Float64Array(size * size);
    const memory = { n, size, half: matrix(), spare: matrix(), x: rows(), sums: rows(), cost: n ** 2 * gramSteps(s) };
    let G = matrix();
    G[(n - 1) * (size + 1)] = 1;
    if (s.diagonal.length > 1) {
      for (let t = s.T - 1; t >= 0; t--) if (mixing[t] > 0) G = yield* sent(G, headsOf(s, t), mixing[t], memory);
      return unitRoots(diagonalOf(G, n, size));
    }
    // the same kernels in all layers: Σ_k w_k 𝓛^k
    const heads = headsOf(s, 0);
    const weights = hopDistribution(mixing, NEGLIGIBLE_SQUARE);
    const total = new Float64Array(n);
    for (let k = 0; k < weights.length; k++) {
      if (k > 0) G = yield* sent(G, heads, 1, memory);
      diagonalOf(G, n, size).forEach((x, i) => (total[i] += weights[k] * x));
    }
    return unitRoots(total);
  }

  function finished(steps) {
    for (;;) {
      const { done, value } = steps.next();
      if (done) return value;
    }
  }

  /** c² / (1 + c²), c = λ / (1 - λ): the share of a layer's attention in squares. */
  function squaredMixing(lambda) {
    return Array.from(lambda, (x) => x ** 2 / ((1 - x) ** 2 + x ** 2));
  }

  /** One kernel for all heads and layers: the root of Σ_k w_k ((A^k)_{n j})². */
  function byPowers(s, mixing) {
    const tables = layerTables(s, s.diagonal[0], workspace(s));
    const total = new Float64Array(s.n);
    let v = new Float64Array(s.n);
    v[s.n - 1] = 1;
    hopDistribution(mixing, NEGLIGIBLE_SQUARE).forEach((weight, k) => {
      if (k > 0) v = pull(v, tables, s);
      for (let i = 0; i < s.n; i++) total[i] += weight * v[i] ** 2;
    });
    return unitRoots(total);
  }

  /** Whether kernels differ between heads or layers, so that sizes of paths alone do not give their squares. */
  function needsGram(s) {
    return s.diagonal.length > 1 || distinctHeads(s, 0).length > 1;
  }

  function diagonalOf(G, n, size) {
    return Float64Array.from({ length: n }, (_, i) => G[i * (size + 1)]);
  }

  function unitRoots(squares) {
    const roots = squares.map(Math.sqrt);
    const sum = roots.reduce((total, x) => total + x, 0);
    return roots.map((x) => x / sum);
  }

  /** The different heads of a layer, as {group, diagonal, count}. */
  function distinctHeads(s, t) {
    const found = new Map();
    s.diagonal[Math.min(t, s.diagonal.length - 1)].forEach((diagonal, h) => {
      const key = `${s.groupOf[h]} ${diagonal}`;
      if (!found.has(key)) found.set(key, { group: s.groupOf[h], diagonal, count: 0 });
      found.get(key).count += 1;
    });
    return Array.from(found.values());
  }

  /** The different heads of a layer with their share of the heads and their tables: own[i], weight[i] and q or k, with
      A[i, j] = weight[i] q^(i-1-j) or weight[i] k[i-j] beside the diagonal; rate[i] is q, or what stands for it from
      key i to key i - 1. */
  function headsOf(s, t) {
    return distinctHeads(s, t).map(({ group, diagonal, count }) => {
      const m = s.unique[group];
      const alone = { ...s, H: 1, unique: [m], groupOf: [0], seen: [s.seen[group]], first: [s.first[group]], coefficients: null };
      const { own, gain, both } = layerTables(alone, [diagonal], workspace({ ...alone, q: [0] }));
      const q = Math.exp(-m);
      const rate = new Float64Array(s.n).fill(q);
      if (s.ratio) rate.set(s.ratio.subarray(0, s.n - 1), 1);
      const weight = Float64Array.from({ length: s.n }, (_, i) => gain[i * LANES] * (s.ratio ? rate[i] : 1));
      const k = s.distance === "log" ? Float64Array.from({ length: s.n }, (_, x) => ((1 + x) / 2) ** -m) : null;
      return { share: count / s.H, own, weight, both, k, q, rate, reach: s.reach, together: s.together };
    });
  }

  /** (1 - mixing) G + mixing Σ_h share_h A_hᵀ G A_h; G is symmetric, `size` numbers to a row, the last of them 0. */
  function* sent(G, heads, mixing, memory) {
    const { n, size, half, spare: out, x, sums, cost } = memory;
    memory.spare = G;
    for (let at = 0; at < G.length; at++) out[at] = (1 - mixing) * G[at];
    for (const head of heads) {
      half.fill(0);
      addTransposed(G, head, 1, half, n, size, x, sums);
      addTransposed(half, head, mixing * head.share, out, n, size, x, sums);
      yield cost;
    }
    return out;
  }

  /** Add factor (X A)ᵀ to out, LANES rows of X at a time. A root follows: only positive numbers are summed. */
  function addTransposed(X, head, factor, out, n, size, x, sums) {
    const plain = !head.k && !head.both && head.reach >= n;
    for (let row = 0; row < size; row += LANES) {
      if (plain) {
        addBackwards(X, head, factor, out, n, size, row);
        continue;
      }
      // the rows, x[i LANES + lane]; then what they send to other keys
      for (let i = 0, at = 0; i < n; i++, at += LANES) {
        const from = row * size + i;
        const to = i * size + row;
        const f = factor * head.own[i];
        out[to] += f * (x[at] = X[from]);
        out[to + 1] += f * (x[at + 1] = X[from + size]);
        out[to + 2] += f * (x[at + 2] = X[from + 2 * size]);
        out[to + 3] += f * (x[at + 3] = X[from + 3 * size]);
      }
      if (head.both) addBothWays(x, head.both, factor, out, size, row);
      for (let i = 0, at = 0; i < n; i++, at += LANES) {
        const f = factor * head.weight[i];
        x[at] *= f;
        x[at + 1] *= f;
        x[at + 2] *= f;
        x[at + 3] *= f;
      }
      if (head.k) addByDistance(x, head, out, n, size, row);
      else if (head.reach < n) addWithin(x, head, out, n, size, row, sums);
      else addAfter(x, head, out, n, size, row);
    }
  }

  /** All of a causal kernel with rates, the own weight too. */
  function addBackwards(X, { own, weight, rate }, factor, out, n, size, row) {
    let ra = 0, rb = 0, rc = 0, rd = 0;
    for (let i = n - 1, from = row * size + i, to = i * size + row; i >= 0; i--, from--, to -= size) {
      const a = factor * X[from];
      const b = factor * X[from + size];
      const c = factor * X[from + 2 * size];
      const d = factor * X[from + 3 * size];
      const self = own[i];
      const w = weight[i];
      const q = rate[i];
      out[to] += self * a + ra;
      out[to + 1] += self * b + rb;
      out[to + 2] += self * c + rc;
      out[to + 3] += self * d + rd;
      ra = ra * q + w * a + SMALL;
      rb = rb * q + w * b + SMALL;
      rc = rc * q + w * c + SMALL;
      rd = rd * q + w * d + SMALL;
    }
  }

  /** What rows that see no other row of a prefix send back. */
  function addAfter(x, { q, together }, out, n, size, row) {
    if (together === n) return;
    let ra = 0, rb = 0, rc = 0, rd = 0;
    for (let i = n - 1, at = i * LANES, to = (i - 1) * size + row; i > 0; i--, at -= LANES, to -= size) {
      out[to] += ra = ra * q + x[at] + SMALL;
      out[to + 1] += rb = rb * q + x[at + 1] + SMALL;
      out[to + 2] += rc = rc * q + x[at + 2] + SMALL;
      out[to + 3] += rd = rd * q + x[at + 3] + SMALL;
    }
  }

  /** Sums over `reach` rows after a key, as the rest of a block of that many rows and the beginning of the next. */
  function addWithin(x, { q, reach }, out, n, size, row, sums) {
    if (reach === 0) return;
    for (let i = 0, place = 0, power = 1; i < n; i++) {
      for (let at = i * LANES; at < (i + 1) * LANES; at++) sums[at] = (place ? sums[at - LANES] : 0) + power * x[at];
      power *= q;
      if (++place === reach) [place, power] = [0, 1];
    }
    let ra = 0, rb = 0, rc = 0, rd = 0;
    for (let i = n - 1, place = i % reach, left = q ** (reach - place); i > 0; i--) {
      const at = i * LANES;
      const to = (i - 1) * size + row;
      const keep = place === reach - 1 ? 0 : q; // a block's last row
      out[to] += ra = ra * keep + x[at];
      out[to + 1] += rb = rb * keep + x[at + 1];
      out[to + 2] += rc = rc * keep + x[at + 2];
      out[to + 3] += rd = rd * keep + x[at + 3];
      if (place > 0 && i - place + reach < n) {
        const end = Math.min(i - 1 + reach, n - 1) * LANES;
        out[to] += left * sums[end];
        out[to + 1] += left * sums[end + 1];
        out[to + 2] += left * sums[end + 2];
        out[to + 3] += left * sums[end + 3];
      }
      left *= q;
      if (--place < 0) [place, left] = [reach - 1, q];
    }
  }

  /** Powers of the distance, key by key. */
  function addByDistance(x, { k, reach, together }, out, n, size, row) {
    for (let j = 0; j < n; j++) {
      let ra = 0, rb = 0, rc = 0, rd = 0;
      const last = Math.min(n - 1, j + reach);
      for (let i = j + 1, at = i * LANES; i <= last; i++, at += LANES) {
        const near = k[i - j];
        ra += x[at] * near;
        rb += x[at + 1] * near;
        rc += x[at + 2] * near;
        rd += x[at + 3] * near;
      }
      const before = j < together ? j : 0; // rows of a prefix that look forward
      for (let i = 0, at = 0; i < before; i++, at += LANES) {
        const near = k[j - i];
        ra += x[at] * near;
        rb += x[at + 1] * near;
        rc += x[at + 2] * near;
        rd += x[at + 3] * near;
      }
      const to = j * size + row;
      out[to] += ra;
      out[to + 1] += rb;
      out[to + 2] += rc;
      out[to + 3] += rd;
    }
  }

  /** Rows that see one another, linear distances: addOthers of several rows. */
  function addBothWays(x, { keys: [key], gain: [gain] }, factor, out, size, row) {
    const K = key.length;
    for (const [first, step] of [[0, 1], [K - 1, -1]]) {
      let ra = 0, rb = 0, rc = 0, rd = 0;
      for (let count = 0, j = first; count < K; count++, j += step) {
        const at = j * LANES;
        const to = j * size + row;
        const f = factor * key[j];
        const w = gain[j];
        out[to] += f * ra;
        out[to + 1] += f * rb;
        out[to + 2] += f * rc;
        out[to + 3] += f * rd;
        ra += w * x[at];
        rb += w * x[at + 1];
        rc += w * x[at + 2];
        rd += w * x[at + 3];
      }
    }
  }

  /* ------------------------------------------------------------------ either law, and what it costs */

  /** The profile by settings.law, "aligned" (sizes, and what is taken if none is named) or "untrained" (squares). */
  const influence = (settings) => finished(influenceSteps(settings));

  /** The same, yielding operations on the way where there are many. */
  function* influenceSteps(settings) {
    return settings.law === "untrained" ? yield* untrainedSteps(settings) : influenceProfile(settings);
  }

  /** Multiplications of the longest loop, about: what a redraw costs. */
  function operations(settings) {
    const s = checked(settings);
    const shared = s.diagonal.length === 1;
    const untrained = settings.law === "untrained";
    const chances = untrained ? hopDistribution(squaredMixing(s.lambda), NEGLIGIBLE_SQUARE) : hopDistribution(s.lambda);
    const hops = chances.length - 1;
    if (untrained && needsGram(s)) {
      const heads = s.diagonal.map((_, t) => distinctHeads(s, t).length);
      const kernels = shared ? hops * heads[0] : heads.reduce((sum, count) => sum + count, 0);
      return kernels * s.n ** 2 * gramSteps(s);
    }
    const pulls = shared ? hops : s.T;
    if (s.cutoff) return s.n * s.q.length * (2 * pulls + 20); // two exponentials for each number of the tables
    const tables = s.H + (s.coefficients ? s.q.length * s.unique.length : 0);
    return s.n * (pulls * s.q.length * (s.together > 1 ? 2 : 1) + (shared ? 1 : s.T) * tables);
  }

  /** Multiplications for each number of a Gram matrix and each kernel that it goes through, about. */
  function gramSteps(s) {
    if (s.distance === "log") return 8 + Math.min(s.n, 2 * s.reach) + s.together;
    return s.reach < s.n || s.together > 1 ? 16 : 6;
  }

  /** Whether a profile takes at most `most` operations and matrices that a browser has room for. Sizes always do. */
  function affordable(settings, most = MOST) {
    if (settings.law !== "untrained" || !needsGram(checked(settings))) return true;
    return settings.n <= WIDEST && operations(settings) <= most;
  }

  /** The greatest length, up to the settings' own, that is affordable. */
  function longest(settings, most = MOST) {
    let [low, high] = [1, settings.n];
    while (low < high) {
      const n = Math.ceil((low + high) / 2);
      if (affordable({ ...settings, n }, most)) low = n;
      else high = n - 1;
    }
    return low;
  }

  /* ------------------------------------------------------------------ what a profile says */

  /** Σ_j j p[j] / (n - 1): 0 if all influence is on the first token, 1 if on the last. */
  function meanPosition(p) {
    let sum = 0;
    for (let j = 0; j < p.length; j++) sum += j * p[j];
    return sum / Math.max(p.length - 1, 1);
  }

  /** Ends, lowest point between them, and whether there is a U, with the last position left out: posbias.u_shape.
      start and end (of the last but one), trough, its index and location (0 to 1), depth = 1 - trough / lower end,
      low and high: first and last place within the tolerance of the trough, present: both ends are above that. */
  function uShape(p) {
    const n = p.length;
    if (n < 4) throw refuse("profile", "at least 4 positions", n);
    const last = n - 2;
    let index = 1;
    for (let j = 2; j < last; j++) if (p[j] < p[index]) index = j;
    const [start, end, trough] = [p[0], p[last], p[index]];
    const bottom = (1 + TOLERANCE) * trough;
    let [low, high] = [index, index];
    for (let j = 1; j < last; j++) {
      if (p[j] > bottom) continue;
      low = Math.min(low, j);
      high = Math.max(high, j);
    }
    const lower = Math.min(start, end);
    const depth = lower > 0 ? 1 - trough / lower : -Infinity;
    const places = { location: index / (n - 1), low: low / (n - 1), high: high / (n - 1) };
    return { start, end, trough, index, depth, ...places, present: lower > bottom };
  }

  /** W₁ of two profiles of equal length on positions scaled to [0, 1]. */
  function wasserstein(p, q) {
    if (p.length !== q.length) throw refuse("profiles", "the same number of positions", `${p.length} and ${q.length}`);
    const total = (x) => x.reduce((sum, value) => sum + value, 0);
    const [P, Q] = [total(p), total(q)];
    let gap = 0;
    let sum = 0;
    for (let j = 0; j < p.length - 1; j++) {
      gap += p[j] / P - q[j] / Q;
      sum += Math.abs(gap);
    }
    return sum / Math.max(p.length - 1, 1);
  }

  /** What posbias compare reads: a header, then one line for each position, counted from 0. */
  function totalVariation(p, q) {
    return p.reduce((sum, x, i) => sum + Math.abs(x - q[i]), 0) / 2;
  }

  /** Spearman's rank correlation; values equal up to 12 digits share their ranks, and a constant has none. */
  function spearman(p, q) {
    const ranks = (given) => {
      const values = Array.from(given, (x) => Math.round(Math.log(x) * 1e12));
      const order = Array.from(values.keys()).sort((i, j) => values[i] - values[j]);
      const found = new Float64Array(values.length);
      for (let i = 0, j; i < order.length; i = j) {
        for (j = i; j < order.length && values[order[j]] === values[order[i]]; j++);
        for (let k = i; k < j; k++) found[order[k]] = (i + j - values.length) / 2; // about the middle rank
      }
      return found;
    };
    const [a, b] = [ranks(p), ranks(q)];
    const product = (x, y) => x.reduce((sum, value, i) => sum + value * y[i], 0);
    return product(a, b) / Math.sqrt(product(a, a) * product(b, b));
  }

  function profileText(p) {
    return ["token_position,probability", ...Array.from(p, (x, j) => `${j},${x}`)].join("\n") + "\n";
  }

  const api = {
    alibiSlopes, geometricSlopes, constantMixing, decayingMixing, influenceProfile, untrainedProfile, influence,
    influenceSteps, hopDistribution, squaredMixing, operations, affordable, longest, exponentialIntegral,
    exponentialIntegralInverse, limitingMean, meanPosition, uShape, wasserstein, totalVariation, spearman,
    profileText, refuse,
  };
  if (typeof module !== "undefined" && module.exports) module.exports = api;
  root.PosbiasEngine = api;
})(typeof globalThis !== "undefined" ? globalThis : this);

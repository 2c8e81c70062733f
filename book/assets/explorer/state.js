/* The explorer's settings: what there is to set, how a link says it, and what it means to the engine. No document here.

   A link is one_page.html#field=value&field=value. Fields that are left out have the values of `model`, if there is
   one, and otherwise the defaults below. The scheme is stable: chapters and readers keep such links.

     model      name of a preset: bloom (BLOOM-176B), bloom-7b1, mpt-7b, mpt-30b, falcon-rw-7b, or a reference model,
                reference-bloom-8 and so on; sets every other field, and shows the measured curve where there is one
     depth      layers, 1 to 100; of a model's own schedule or content, its first layers
     mixing     constant, decay or model
     lambda     mixing of every layer, 0 to 1 (mixing=constant)
     lambda0, beta   λ_t = lambda0 · t^-beta (mixing=decay)
     encoding   none, alibi, decay or log: logits -m (i - j), the same with one slope, or -m log(1 + |i - j|);
                or log-position: α log j; or flat: -log log(i / j) for j < i e^-ε, E₁(ε) = τ. Positions are counted
                from 1, and these two are causal
     alpha      α > -1 in every head (encoding=log-position)
     tau        τ in every head (encoding=flat)
     heads      1 to 128
     slopes     rule, geometric or one: ALiBi's own rule, 2^(-8h/H) for any H, or `slope` in every head
     scale      factor on the slopes of a rule
     slope      m in every head (encoding=decay, or slopes=one)
     mask       causal, window or prefix
     width      tokens of the window (the query included) or of the prefix
     content    none, diagonal, mean or all: `diagonal` in every head, or the model's own, averaged or head by head
     diagonal   logit added where a token attends to itself
     length     tokens, 4 to 4096
     off        forces switched off, with commas between: mask, residual, position, content
     law        aligned or untrained: what comes through different layers added as sizes, or as squares
     axis       log or linear: the axis of influence
     beside     none, contributions, value-maps or both: predictions that were made of the model itself, as curves */
(function (root) {
  "use strict";

  const engine = root.PosbiasEngine;
  const FORCES = ["mask", "residual", "position", "content"];
  const CAUSAL_ONLY = ["log-position", "flat"];

  /** In the order of a link. `factor` says that a slider is divided by equal factors, of the value plus `shift`. */
  const FIELDS = [
    { name: "model", kind: "choice", initial: "" },
    { name: "depth", kind: "number", whole: true, min: 1, max: 100, step: 1, initial: 12 },
    { name: "mixing", kind: "choice", options: ["constant", "decay", "model"], initial: "constant" },
    { name: "lambda", kind: "number", min: 0, max: 1, step: 0.005, initial: 0.1 },
    { name: "lambda0", kind: "number", min: 0.01, max: 1, step: 0.01, initial: 0.6 },
    { name: "beta", kind: "number", min: 0, max: 3, step: 0.05, initial: 1 },
    { name: "encoding", kind: "choice", options: ["none", "alibi", "decay", "log", "log-position", "flat"], initial: "alibi" },
    { name: "alpha", kind: "number", factor: true, shift: 1, min: -0.99, max: 99, initial: 0.2 },
    { name: "tau", kind: "number", factor: true, min: 0.01, max: 100, initial: 1.2 },
    { name: "heads", kind: "number", whole: true, min: 1, max: 128, step: 1, initial: 8 },
    { name: "slopes", kind: "choice", options: ["rule", "geometric", "one"], initial: "rule" },
    { name: "scale", kind: "number", factor: true, min: 0.01, max: 16, initial: 1 },
    { name: "slope", kind: "number", factor: true, min: 0.001, max: 4, initial: 0.25 },
    { name: "mask", kind: "choice", options: ["causal", "window", "prefix"], initial: "causal" },
    { name: "width", kind: "number", whole: true, factor: true, min: 1, max: 4096, initial: 16 },
    { name: "content", kind: "choice", options: ["none", "diagonal", "mean", "all"], initial: "none" },
    { name: "diagonal", kind: "number", min: -10, max: 10, step: 0.1, initial: 2 },
    { name: "length", kind: "number", whole: true, factor: true, min: 4, max: 4096, initial: 256 },
    { name: "off", kind: "set", options: FORCES, initial: [] },
    { name: "law", kind: "choice", options: ["aligned", "untrained"], initial: "aligned" },
    { name: "axis", kind: "choice", options: ["log", "linear"], initial: "log" },
    { name: "beside", kind: "choice", options: ["none", "contributions", "value-maps", "both"], initial: "none" },
  ];
  const BY_NAME = new Map(FIELDS.map((field) => [field.name, field]));

  function presetOf(state, presets) {
    return presets.find((preset) => preset.name === state.model) || null;
  }

  /** What a link without other fields means. */
  function initialState(preset) {
    const state = Object.fromEntries(FIELDS.map((f) => [f.name, Array.isArray(f.initial) ? [] : f.initial]));
    if (!preset) return state;
    return Object.assign(state, {
      model: preset.name,
      depth: preset.lambda.length,
      mixing: "model",
      encoding: preset.slopes === "none" ? "none" : "alibi",
      heads: preset.heads,
      slopes: preset.slopes === "none" ? "rule" : preset.slopes,
      scale: preset.scale,
      mask: preset.window ? "window" : "causal",
      width: preset.window || BY_NAME.get("width").initial,
      content: "all",
      length: preset.length,
      beside: preset.curves ? "both" : "none",
    });
  }

  /** The settings that a hash asks for, and what of it was refused, as {field, expected, received}. */
  function parse(hash, presets) {
    const refused = [];
    const refuse = (field, expected, received) => refused.push({ field, expected, received });
    const given = new Map();
    for (const [name, value] of new URLSearchParams(hash.replace(/^#/, ""))) {
      if (!BY_NAME.has(name)) refuse(name, `one of the fields ${FIELDS.map((f) => f.name).join(", ")}`, value || "no value");
      else given.set(name, value);
    }
    const names = presets.map((preset) => preset.name);
    const model = given.get("model") || "";
    if (model && !names.includes(model)) refuse("model", `one of ${names.join(", ")}`, model);
    const preset = presets.find((p) => p.name === model) || null;
    const state = initialState(preset);
    for (const field of FIELDS) {
      if (field.name === "model" || !given.has(field.name)) continue;
      const text = given.get(field.name);
      const [value, expected] = valueOf(field, text, preset, state.encoding);
      if (expected) refuse(field.name, expected, text === "" ? "no value" : text);
      else state[field.name] = value;
    }
    return { state: fitted(state, presets), refused };
  }

  /** What may be chosen: nothing of a model without one, and no mask but the causal with logits that are causal. */
  function optionsOf(field, preset, encoding) {
    const causal = CAUSAL_ONLY.includes(encoding);
    if (causal && field.name === "mask") return ["causal"];
    if (causal && field.name === "off") return field.options.filter((o) => o !== "mask");
    if (field.name === "beside" && !(preset && preset.curves)) return ["none"];
    return field.options.filter((o) => preset || !(o === "model" || o === "mean" || o === "all"));
  }

  /** A field's value, or undefined and what was expected. */
  function valueOf(field, text, preset, encoding) {
    const there = field.kind === "number" ? [] : optionsOf(field, preset, encoding);
    const why = ["mask", "off"].includes(field.name) ? ` with encoding=${encoding}` : " without a model that has others";
    if (field.kind === "choice") {
      if (there.includes(text)) return [text];
      return [undefined, `one of ${there.join(", ")}${field.options.includes(text) ? why : ""}`];
    }
    if (field.kind === "set") {
      const parts = text.split(",").filter((part) => part);
      if (parts.every((part) => there.includes(part))) return [there.filter((o) => parts.includes(o))];
      const known = parts.every((part) => field.options.includes(part));
      return [undefined, `any of ${there.join(", ")}${known ? why : ""}, with commas between`];
    }
    const value = text.trim() === "" ? NaN : Number(text);
    const fits = value >= field.min && value <= field.max && (!field.whole || Number.isInteger(value));
    return fits ? [value] : [undefined, `${field.whole ? "an integer" : "a number"} from ${field.min} to ${field.max}`];
  }

  /** The settings with what depends on others put right: a model's schedule has no more layers than the model. */
  function fitted(state, presets) {
    const preset = presetOf(state, presets);
    const next = { ...state, off: [...state.off] };
    if (CAUSAL_ONLY.includes(next.encoding)) {
      next.mask = "causal";
      next.off = next.off.filter((force) => force !== "mask");
    }
    if (!preset || !preset.curves) next.beside = "none";
    if (!preset) {
      next.model = "";
      if (next.mixing === "model") next.mixing = "constant";
      if (next.content === "mean" || next.content === "all") next.content = "none";
      return next;
    }
    if (next.mixing === "model" || next.content === "all") next.depth = Math.min(next.depth, preset.lambda.length);
    if (next.content === "all") next.heads = preset.heads;
    return next;
  }

  /** A short hash that means these settings; it is never empty, because a page without one opens with a model. */
  function format(state, presets) {
    const base = initialState(presetOf(state, presets));
    const parts = [];
    for (const { name } of FIELDS) {
      const value = String(state[name]);
      if (name === "model" ? value : value !== String(base[name])) parts.push(`${name}=${value}`);
    }
    return `#${parts.join("&") || `depth=${state.depth}`}`;
  }

  /* ------------------------------------------------------------------ for the engine */

  function mixingOf(state, preset) {
    if (state.mixing === "model") return preset.lambda.slice(0, state.depth);
    if (state.mixing === "decay") return engine.decayingMixing(state.depth, state.lambda0, state.beta);
    return engine.constantMixing(state.depth, state.lambda);
  }

  function slopesOf(state) {
    const H = state.heads;
    if (state.encoding === "none" || CAUSAL_ONLY.includes(state.encoding)) return new Array(H).fill(0);
    if (state.encoding === "decay" || state.slopes === "one") return new Array(H).fill(state.slope);
    const rule = state.slopes === "geometric" ? engine.geometricSlopes(H) : engine.alibiSlopes(H);
    return rule.map((m) => m * state.scale);
  }

  /** The logits that are functions of the ratio of positions, or null. */
  function biasOf(state) {
    if (state.encoding === "log-position") return { kind: "log", alpha: state.alpha };
    return state.encoding === "flat" ? { kind: "flat", tau: state.tau } : null;
  }

  function diagonalOf(state, preset) {
    if (state.content === "diagonal") return state.diagonal;
    if (state.content === "mean") return preset.mean;
    if (state.content === "all") return exactRows(preset).slice(0, state.depth);
    return 0;
  }

  const rows = new Map();

  /** A preset's content; numbers of single precision stand in the data with as many digits as tell them apart. */
  function exactRows(preset) {
    if (!rows.has(preset)) rows.set(preset, preset.single ? preset.diagonal.map((r) => r.map(Math.fround)) : preset.diagonal);
    return rows.get(preset);
  }

  /** What the engine takes. A force that is off: every token sees all others; λ = 1; no slopes; no diagonal. */
  function settingsOf(state, presets) {
    const preset = presetOf(state, presets);
    const off = new Set(state.off);
    const lambda = mixingOf(state, preset);
    return {
      n: state.length,
      lambda: off.has("residual") ? lambda.map(() => 1) : lambda,
      distance: state.encoding === "log" ? "log" : "linear",
      slopes: off.has("position") ? new Array(state.heads).fill(0) : slopesOf(state),
      bias: off.has("position") ? null : biasOf(state),
      diagonal: off.has("content") ? 0 : diagonalOf(state, preset),
      mask: off.has("mask") ? { kind: "full" } : { kind: state.mask, width: state.width },
      law: state.law,
    };
  }

  /** Which forces are there to be switched. Flat logits hide the diagonal, and what content adds to it. */
  function presentForces(state, presets) {
    const preset = presetOf(state, presets);
    if (hidesDiagonal(state)) return presentForces({ ...state, encoding: "log-position", content: "none" }, presets);
    return {
      mask: !CAUSAL_ONLY.includes(state.encoding),
      residual: mixingOf(state, preset).some((x) => x < 1),
      position: state.encoding !== "none",
      content: state.content === "mean" || state.content === "all" || (state.content === "diagonal" && state.diagonal !== 0),
    };
  }

  const hidesDiagonal = (state) => state.encoding === "flat" && !state.off.includes("position");

  /** Σλ of the layers as they are drawn, and the τ and the α = Σλ - 1 that fit it, within what can be set. */
  function matching(state, presets) {
    const total = Number(settingsOf(state, presets).lambda.reduce((sum, x) => sum + x, 0).toPrecision(6));
    const within = ({ min, max }, x) => Math.min(Math.max(x, min), max);
    const alpha = Number((total - 1).toPrecision(6));
    return { total, tau: within(BY_NAME.get("tau"), total), alpha: within(BY_NAME.get("alpha"), alpha) };
  }

  /** The curve measured on the model, if it has one and the lengths agree. */
  function measuredOf(state, presets) {
    const preset = presetOf(state, presets);
    return preset && preset.measured && preset.measured.length === state.length ? preset.measured : null;
  }

  /** Predictions beside the rollout, by name, if the model has them and the lengths agree. */
  function besideOf(state, presets) {
    const { curves } = presetOf(state, presets) || {};
    const asked = Object.entries(curves || {}).filter(([name]) => ["both", name].includes(state.beside));
    return Object.fromEntries(asked.filter(([, curve]) => curve.length === state.length));
  }

  /** The curves in a text: a profile as `posbias rollout` writes it, or a measurement as a table (to_pandas, to_csv). */
  function readCurves(text) {
    const [header, ...lines] = text.trim().split(/\r?\n/).map((line) => line.split(","));
    const refuse = (expected, received) => { throw engine.refuse("file", expected, received); };
    const column = (names) => {
      const at = header.findIndex((name) => names.includes(name.trim()));
      if (at < 0) return null;
      const values = lines.map((line) => Number(line[at]));
      const total = values.reduce((sum, x) => sum + x, 0);
      if (!(total > 0) || values.some((x) => !(x >= 0))) refuse("shares that are numbers of at least 0", header[at]);
      return values.map((x) => x / total);
    };
    const measured = column(["measured", "probability"]);
    const { min, max } = BY_NAME.get("length");
    if (!measured) refuse("a column measured or probability", header.join(",").slice(0, 60));
    if (lines.length < min || lines.length > max) refuse(`${min} to ${max} tokens`, lines.length);
    return { measured, contributions: column(["contributions"]), "value-maps": column(["value-maps"]) };
  }

  /* ------------------------------------------------------------------ in words */

  const RAISED = { "-": "⁻", 0: "⁰", 1: "¹", 2: "²", 3: "³", 4: "⁴", 5: "⁵", 6: "⁶", 7: "⁷", 8: "⁸", 9: "⁹" };

  /** A share as a percentage with three digits, or as a power of ten where it is tiny. */
  function share(x) {
    if (x === 0) return "0%";
    if (x >= 1e-5) return `${Number((100 * x).toPrecision(3))}%`;
    const [digits, power] = x.toExponential(1).split("e");
    return `${digits} × 10${Array.from(String(Number(power)), (c) => RAISED[c]).join("")}`;
  }

  function times(ratio) {
    if (ratio >= 0.995 && ratio < 1.005) return "the uniform 1/n";
    const digits = ratio >= 100 ? Math.round(ratio).toLocaleString("en") : Number(ratio.toPrecision(2));
    return ratio < 0.01 ? "less than a hundredth of the uniform 1/n" : `${digits} times the uniform 1/n`;
  }

  function mixingInWords(lambda, sizes) {
    const total = (values) => Number(values.reduce((sum, x) => sum + x, 0).toPrecision(4));
    if (!sizes) return `Σλ = ${total(lambda)}: attention hops on a path, on average`;
    return `Σλ = ${total(lambda)}; in squares ${total(engine.squaredMixing(lambda))} attention hops on average`;
  }

  const digits = (x, count) => String(Number(x.toPrecision(count))).replace("-", "−");

  /** What logits by the ratio of positions do to a query, and where they leave the mean position in long prompts. */
  function biasInWords(bias, lambda, n, sizes) {
    const limit = `in long prompts the mean position${sizes ? " by sizes" : ""} tends to ${engine.limitingMean(lambda, bias).toFixed(3)}`;
    if (bias.kind === "log")
      return `α log j, α = ${digits(bias.alpha, 4)}: a query attends to token j in proportion to j to the power α; ${limit}`;
    const nearest = engine.exponentialIntegralInverse(bias.tau);
    const hidden = `flat for τ = ${digits(bias.tau, 4)}: a query sees neither itself nor tokens nearer than ${share(-Math.expm1(-nearest))} of its position`;
    const long = nearest * n >= 4; // the last query does leave some tokens out
    return `${hidden}; ${long ? limit : `that is less than ${nearest * n < 1 ? "a token" : "four tokens"} here, too little for the limit of long prompts`}`;
  }

  /** Term and description of what the profile p shows, for the list below the plot and for screen readers. `sizes` is
      what adding sizes gives, where p is the law of untrained networks. */
  function describe(p, lambda, measured, sizes, bias, beside = {}) {
    const n = p.length;
    const shape = engine.uShape(p);
    const mean = engine.meanPosition(p);
    const lower = shape.start <= shape.end ? "first token" : "token before the last";
    const below = shape.depth >= 0.9995 ? "more than 99.9%" : `${Number((100 * shape.depth).toPrecision(3))}%`;
    const trough = shape.present
      ? `${share(shape.trough)} at token ${shape.index + 1} of ${n}, ${below} below the ${lower}`
      : `no trough: no token between them is clearly below both the first token and the token before the last`;
    const found = [
      ["First token", `${share(shape.start)} of the influence, ${times(shape.start * n)}`],
      ["Trough", trough],
      ["Last token", `${share(p[n - 1])}, ${times(p[n - 1] * n)}`],
      ["Mean position", `${mean.toFixed(3)}, where 0 is the first token and 1 the last`],
      ["To the uniform 1/n", `distance ${engine.wasserstein(p, p.map(() => 1 / n)).toFixed(4)}`],
      ["Total mixing", mixingInWords(lambda, sizes)],
    ];
    if (bias) found.push(["Position logits", biasInWords(bias, lambda, n, sizes)]);
    if (sizes) {
      const gap = engine.wasserstein(p, sizes).toFixed(3);
      const far = `mean position ${engine.meanPosition(sizes).toFixed(3)}, distance ${gap}`;
      found.push(["Law of untrained networks", `squares are added over sets of layers; adding sizes instead: ${far}`]);
    }
    if (measured) {
      const near = (q) => `W₁ ${engine.wasserstein(q, measured).toFixed(3)}, total variation ${engine.totalVariation(q, measured).toFixed(3)}, rank ${digits(engine.spearman(q, measured), 2)}`;
      found.push(["To the measured curve", near(p)]);
      for (const [name, q] of Object.entries(beside)) found.push([`${name}, to it`, near(q)]);
    }
    return found;
  }

  const api = {
    FIELDS, FORCES, CAUSAL_ONLY, parse, format, fitted, initialState, presetOf, optionsOf, settingsOf, presentForces, hidesDiagonal,
    matching, measuredOf, besideOf, readCurves, describe, share,
  };
  if (typeof module !== "undefined" && module.exports) module.exports = api;
  root.PosbiasState = api;
})(typeof globalThis !== "undefined" ? globalThis : this);

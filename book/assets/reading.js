/* The law of reading, to move: sharpness, pull of the ends, number of documents; beside it what SmolLM2 answered.
   A document at place j is answered from, if the one at q is asked for, in proportion to exp(b_j − γ|q − j|).
   Formulas are those of studies/theorems/reading.py, against whose numbers a test holds them. */
(function () {
  "use strict";

  /** Answers of 80 sets of eight competing documents, from the document of the column where that of the row is asked. */
  const SEEN = [
    [68, 3, 1, 0, 0, 2, 0, 0], [27, 17, 11, 3, 4, 3, 4, 5], [5, 6, 20, 8, 11, 7, 8, 9], [2, 3, 9, 12, 11, 12, 14, 11],
    [3, 0, 3, 5, 9, 13, 20, 22], [0, 0, 0, 2, 3, 14, 21, 35], [0, 0, 0, 1, 1, 3, 24, 46], [1, 0, 0, 1, 1, 3, 7, 64],
  ];

  /** P(answer from j | asked for q), q by rows. */
  function matrix(gamma, places, first, last) {
    const pull = (j) => (j === 0 ? first : j === places - 1 ? last : 0);
    return Array.from({ length: places }, (_, q) => {
      const weights = Array.from({ length: places }, (__, j) => Math.exp(pull(j) - gamma * Math.abs(q - j)));
      const whole = weights.reduce((sum, x) => sum + x, 0);
      return weights.map((x) => x / whole);
    });
  }

  /** Whether every place between the ends has a lower accuracy than both ends. */
  function isMiddleLost(accuracy) {
    const inner = accuracy.slice(1, -1);
    return Math.max(...inner) < Math.min(accuracy[0], accuracy[accuracy.length - 1]);
  }

  /** The pull of both ends above which the middle is lost. */
  function leastPull(gamma, places) {
    const r = Math.exp(-gamma);
    const sum = (k) => (r * (1 - r ** k)) / (1 - r);
    const square = r + r ** (places - 2);
    const linear = sum(places - 3) - r ** (places - 1);
    return Math.log((-linear + Math.sqrt(linear ** 2 + 4 * square * sum(places - 2))) / (2 * square));
  }

  /** The pull above which the worst places are next to the ends, and below which they are in the middle. */
  const turningPull = (gamma) => -Math.log(1 - Math.exp(-gamma));

  /** Places from 1 on, from the highest accuracy to the lowest; of equals the earlier first. */
  function bestOrder(accuracy) {
    const exact = accuracy.map((x) => Math.round(x * 1e12));
    return accuracy.map((_, k) => k).sort((a, b) => exact[b] - exact[a] || a - b).map((k) => k + 1);
  }

  const engine = { SEEN, matrix, isMiddleLost, leastPull, turningPull, bestOrder };
  if (typeof module !== "undefined" && module.exports) module.exports = engine;
  if (typeof document === "undefined") return;
  const place = document.getElementById("reading-law");
  if (!place) return;

  function make(tag, attributes, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  }

  function draw(tag, attributes, text) {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    if (text !== undefined) element.textContent = text;
    return element;
  }

  const percent = (x) => `${Math.round(100 * x)} %`;
  const signed = (x) => `${x < -0.005 ? "−" : ""}${Math.abs(x).toFixed(2)}`;

  /** A picture of shares, the row's document asked for and the column's answered from; the right one has a frame. */
  function picture(rows, title) {
    const places = rows.length, size = 220, cell = size / places, left = 30;
    const svg = draw("svg", { viewBox: `0 0 ${left + size + 2} ${size + 44}`, role: "img", "aria-label": title });
    rows.forEach((row, q) => row.forEach((share, j) => {
      const box = { x: left + j * cell, y: q * cell + 2, width: cell, height: cell, "fill-opacity": share.toFixed(3) };
      const drawn = draw("rect", { ...box, class: "reading-law-share" });
      drawn.append(draw("title", {}, `asked for ${q + 1}, answered from ${j + 1}: ${percent(share)}`));
      svg.append(drawn);
      if (q === j) svg.append(draw("rect", { ...box, "fill-opacity": 0, class: "reading-law-right" }));
    }));
    const every = places <= 10 ? 1 : places <= 20 ? 5 : 10;
    for (let k = 1; k <= places; k += 1) {
      if (k !== 1 && k % every !== 0) continue;
      svg.append(draw("text", { x: left + (k - 0.5) * cell, y: size + 18, "text-anchor": "middle" }, k));
      svg.append(draw("text", { x: left - 5, y: (k - 0.5) * cell + 7, "text-anchor": "end" }, k));
    }
    svg.append(draw("text", { x: left + size / 2, y: size + 38, "text-anchor": "middle" }, "answered from"));
    svg.append(draw("text", { x: -size / 2, y: 11, transform: "rotate(-90)", "text-anchor": "middle" }, "asked for"));
    return make("figure", {}, make("figcaption", {}, title), svg);
  }

  /** Right answers by place: a line for the law, dots for what was seen if there are as many places. */
  function curve(accuracy, seen) {
    const [width, height, left, top] = [520, 150, 46, 8];
    const x = (k) => left + 8 + (k / (accuracy.length - 1)) * (width - left - 20);
    const y = (share) => top + (1 - share) * height;
    const svg = draw("svg", { viewBox: `0 0 ${width} ${height + 52}`, role: "img", "aria-label": "Right answers by place" });
    for (const share of [0, 0.5, 1]) {
      svg.append(draw("line", { x1: left, x2: width - 4, y1: y(share), y2: y(share), class: "reading-law-grid" }));
      svg.append(draw("text", { x: left - 6, y: y(share) + 4, "text-anchor": "end" }, percent(share)));
    }
    const points = accuracy.map((share, k) => `${x(k).toFixed(1)},${y(share).toFixed(1)}`);
    svg.append(draw("polyline", { points: points.join(" "), class: "reading-law-line" }));
    if (seen) seen.forEach((share, k) => svg.append(draw("circle", { cx: x(k), cy: y(share), r: 4, class: "reading-law-dot" })));
    const every = accuracy.length <= 16 ? 1 : 4;
    accuracy.forEach((_, k) => {
      if (k === 0 || (k + 1) % every === 0) svg.append(draw("text", { x: x(k), y: height + 26, "text-anchor": "middle" }, k + 1));
    });
    svg.append(draw("text", { x: width / 2, y: height + 46, "text-anchor": "middle" }, "place of the document asked for"));
    return make("figure", {}, make("figcaption", {}, seen ? "Right answers: the law (line), SmolLM2 (dots)" : "Right answers by the law"), svg);
  }

  const FIELDS = [
    ["gamma", "sharpness γ, per place", 0.05, 3, 0.01, 0.6], ["first", "pull of the first place", -1, 4, 0.05, 0.9],
    ["last", "pull of the last place", -1, 4, 0.05, 1.95], ["places", "documents", 3, 32, 1, 8],
  ];
  const inputs = {}, outputs = {};
  const fields = FIELDS.map(([name, text, min, max, step, value]) => {
    const id = `reading-law-${name}`;
    inputs[name] = make("input", { type: "range", id, min, max, step, value });
    outputs[name] = make("output", { for: id });
    inputs[name].addEventListener("input", show);
    return make("div", {}, make("label", { for: id }, text), inputs[name], outputs[name]);
  });
  const pictures = make("div", { class: "reading-law-pictures" });
  const said = make("p", { role: "status" });
  place.append(make("div", { class: "reading-law-fields" }, ...fields), pictures, said);
  const seen = SEEN.map((row) => row.map((x) => x / row.reduce((sum, y) => sum + y, 0)));

  function show() {
    const value = (name) => Number(inputs[name].value);
    const [gamma, first, last, places] = ["gamma", "first", "last", "places"].map(value);
    for (const name of ["gamma", "first", "last"]) outputs[name].value = signed(value(name));
    outputs.places.value = places;
    const law = matrix(gamma, places, first, last), accuracy = law.map((row, q) => row[q]);
    pictures.replaceChildren(picture(law, "The law"), picture(seen, "SmolLM2, eight documents"),
      curve(accuracy, places === seen.length ? seen.map((row, q) => row[q]) : null));
    const order = bestOrder(accuracy), worst = order[order.length - 1];
    const lost = isMiddleLost(accuracy) ? "The middle is lost: every place between the ends has fewer right answers than both." : "The middle is not lost: a place between the ends has as many right answers as one of them.";
    const bound = first === last ? ` With equal pulls, it is lost above a pull of ${signed(leastPull(gamma, places))}.` : "";
    said.textContent = `${lost}${bound} Best place: ${order[0]} (${percent(accuracy[order[0] - 1])}); worst: ${worst} (${percent(accuracy[worst - 1])}). Above a pull of ${signed(turningPull(gamma))} at both ends, the worst places are next to the ends.`;
  }
  show();
})();

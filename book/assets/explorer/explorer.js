/* The explorer on the page: controls made from the fields of state.js, the plot (uPlot), words, links and downloads. */
(function () {
  "use strict";

  const engine = window.PosbiasEngine;
  const scheme = window.PosbiasState;
  const presets = window.PosbiasPresets;
  const START = "#model=smollm2"; // what a page without settings in its address shows
  const SLOW = 4e7; // operations from which a redraw waits until the slider rests
  const AT_ONCE = 1e8; // the most that are done in one go: a longer drawing goes on between what the reader does
  const SLICE = 25; // milliseconds of it at a time
  const FLOOR = 1e-12; // lowest value on a logarithmic axis

  const TEXT = {
    model: ["Model"],
    depth: ["Depth", "layers T"],
    mixing: ["Mixing λ", "", { constant: "constant", decay: "falls with depth", model: "the model's own" }],
    lambda: ["λ of every layer"],
    lambda0: ["λ₀ of the first layer"],
    beta: ["Exponent β", "λ = λ₀ t^−β in layer t"],
    encoding: [
      "Encoding", "",
      {
        none: "none", alibi: "ALiBi", decay: "decay mask, one slope", log: "log of distance",
        "log-position": "log of position", flat: "flat, −log log(i/j)",
      },
    ],
    alpha: ["Exponent α", "logits α log j"],
    tau: ["Flat for τ", "a total mixing"],
    heads: ["Heads", "H"],
    slopes: ["Slopes", "", { rule: "ALiBi's own rule", geometric: "2^(−8h/H)", one: "one for all heads" }],
    scale: ["Factor on the slopes"],
    slope: ["Slope m"],
    mask: ["Mask", "", { causal: "causal", window: "sliding window", prefix: "prefix" }],
    width: ["Width", "tokens"],
    content: [
      "Content logits", "",
      { none: "none", diagonal: "one value", mean: "model, mean", all: "model, head by head" },
    ],
    diagonal: ["Diagonal", "added where a token attends to itself"],
    length: ["Length", "tokens n"],
    law: ["Law", "", { aligned: "rollout: sizes", untrained: "law of untrained networks: squares" }],
    axis: ["Influence axis", "", { linear: "linear", log: "logarithmic" }],
    beside: ["Curves beside", "", { none: "none", contributions: "contributions", "value-maps": "value maps", both: "both" }],
  };
  const GROUPS = [
    ["Layers", ["depth", "mixing", "lambda", "lambda0", "beta"]],
    ["Position", ["encoding", "slope", "alpha", "tau", "match", "heads", "slopes", "scale"]],
    ["Mask and length", ["mask", "width", "length"]],
    ["Content and curves", ["content", "diagonal", "axis", "beside"]],
  ];
  const FORCE_TEXT = {
    mask: ["Causal mask", "off: every token sees all others"],
    residual: ["Residual stream", "off: λ = 1, attention only"],
    position: ["Positional encoding", "off: no position logits"],
    content: ["Content diagonal", "off: content logits 0"],
  };

  const CAUSAL_HINT = "these position logits are causal";
  const HIDDEN_HINT = "no effect: flat logits hide the diagonal";

  const LAW_HINT = {
    aligned: "What comes through different layers points one way and adds as sizes: the rollout.",
    untrained: "Value maps are independent, as before training: what comes through different sets of layers adds as squares.",
  };

  const place = document.getElementById("explorer");
  if (!place || !engine || !scheme || !presets || !window.uPlot) return;

  let state;
  let drawn = null; // what the plot shows: law, profile, all (with all forces, if one is off), sizes, measured, lambda
  let own = null; // curves of a file that the reader gave: measured, contributions, value-maps
  let addressed = false; // whether the settings go into the address: not before there are any to keep
  let unfinished = false; // whether the law of untrained networks is still being computed
  let waiting = 0;
  let resting = 0;
  const controls = new Map();

  /* ------------------------------------------------------------------ small parts */

  function make(tag, attributes, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (value === true) element.setAttribute(name, "");
      else if (value !== false && value !== undefined) element.setAttribute(name, value);
    }
    element.append(...children);
    return element;
  }

  const fieldOf = (name) => scheme.FIELDS.find((field) => field.name === name);
  const STEPS = 240; // of a slider that is divided by equal factors

  function toSlider(field, value) {
    if (!field.factor) return value;
    const { min, max, shift = 0 } = field;
    return Math.round((STEPS * Math.log((value + shift) / (min + shift))) / Math.log((max + shift) / (min + shift)));
  }

  function fromSlider(field, position) {
    if (!field.factor) return Number(position);
    const { min, max, shift = 0 } = field;
    const value = (min + shift) * ((max + shift) / (min + shift)) ** (position / STEPS);
    return field.whole ? Math.round(value) : Number((Number(value.toPrecision(3)) - shift).toFixed(5));
  }

  /* ------------------------------------------------------------------ controls */

  function numberControl(field) {
    const [label, hint] = TEXT[field.name];
    const id = `explorer-${field.name}`;
    const range = make("input", {
      type: "range", id,
      min: field.factor ? 0 : field.min, max: field.factor ? STEPS : field.max, step: field.factor ? 1 : field.step,
    });
    const exact = make("input", {
      type: "number", id: `${id}-exact`, min: field.min, max: field.max, step: field.whole ? 1 : "any",
      "aria-label": `${label}${hint ? `, ${hint}` : ""}: exact value`, inputmode: field.whole ? "numeric" : "decimal",
    });
    range.addEventListener("input", () => {
      let value = fromSlider(field, range.value);
      if (field.factor && value === state[field.name]) {
        // neighbouring positions can round to one value: a key press must still move
        const next = value + Math.sign(Number(range.value) - toSlider(field, value));
        if (field.whole) value = Math.min(field.max, Math.max(field.min, next));
      }
      change({ [field.name]: value });
    });
    exact.addEventListener("change", () => {
      const { state: asked, refused } = scheme.parse(`#model=${state.model}&${field.name}=${exact.value}`, presets);
      showRefused(refused, "kept as it was");
      if (refused.length) refresh();
      else change({ [field.name]: asked[field.name] });
    });
    const unit = hint ? make("span", { class: "explorer-hint" }, ` ${hint}`) : "";
    const row = make("div", { class: "explorer-field" }, make("label", { for: id }, label, unit), exact, range);
    const show = (value) => {
      range.value = toSlider(field, value);
      range.setAttribute("aria-valuetext", String(value));
      if (document.activeElement !== exact || Number(exact.value) !== value) exact.value = value;
    };
    return { row, show, disable: (yes) => { range.disabled = exact.disabled = yes; } };
  }

  function choiceControl(field) {
    const [label, , names] = TEXT[field.name];
    const id = `explorer-${field.name}`;
    const select = make("select", { id });
    if (field.name === "model") {
      select.append(make("option", { value: "" }, "no model"));
      for (const [collection, title] of [["pretrained", "A model that people use"], ["published", "Published models"], ["reference", "Reference models"]]) {
        const there = presets.filter((preset) => preset.collection === collection);
        const options = there.map((preset) => make("option", { value: preset.name }, preset.label));
        select.append(make("optgroup", { label: title }, ...options));
      }
    }
    select.addEventListener("change", () => {
      if (field.name !== "model") return change({ [field.name]: select.value });
      const preset = presets.find((p) => p.name === select.value) || null;
      const base = scheme.initialState(preset);
      return change({ ...(preset ? base : { model: "" }), law: state.law, axis: state.axis });
    });
    const row = make("div", { class: "explorer-field explorer-choice" }, make("label", { for: id }, label), select);
    const show = (value) => {
      if (field.name !== "model") {
        const there = scheme.optionsOf(field, scheme.presetOf(state, presets), state.encoding);
        if (there.join() !== Array.from(select.options, (o) => o.value).join())
          select.replaceChildren(...there.map((o) => make("option", { value: o }, names[o])));
      }
      select.value = value;
    };
    return { row, show, disable: (yes) => { select.disabled = yes; } };
  }

  function forceControl(force) {
    const [label, hint] = FORCE_TEXT[force];
    const id = `explorer-force-${force}`;
    const box = make("input", { type: "checkbox", role: "switch", id, "aria-describedby": `${id}-hint` });
    box.addEventListener("change", () => {
      const off = scheme.FORCES.filter((f) => (f === force ? !box.checked : state.off.includes(f)));
      change({ off });
    });
    const text = make("span", { class: "explorer-hint", id: `${id}-hint` }, hint);
    const row = make("div", { class: "explorer-switch" }, box, make("label", { for: id }, label), text);
    /** `instead`: what to say where the switch cannot be moved. The mask is there all the same. */
    const show = (on, present, instead) => {
      box.checked = on && (present || force === "mask");
      box.disabled = !present;
      text.textContent = present ? hint : instead;
    };
    return { row, show };
  }

  function button(text, action) {
    const element = make("button", { type: "button", class: "explorer-button" }, text);
    element.addEventListener("click", action);
    return element;
  }

  /* ------------------------------------------------------------------ the page */

  const refusedBox = make("div", { class: "explorer-refused", role: "alert", hidden: true });
  const plotPlace = make("div", { class: "explorer-plot", role: "img", "aria-label": "Influence of each token" });
  const legend = make("ul", { class: "explorer-legend", "aria-label": "Curves" });
  const note = make("div", { class: "explorer-note", hidden: true });
  const words = make("dl", { class: "explorer-words" });
  const spoken = make("div", { class: "explorer-spoken", "aria-live": "polite", "aria-atomic": "true" });
  const reader = make("input", { type: "range", id: "explorer-token", min: 1, step: 1, max: 256, value: 1 });
  const reading = make("output", { for: "explorer-token", class: "explorer-reading" });
  const linkField = make("input", { type: "text", readonly: true, id: "explorer-link" });
  const copied = make("span", { role: "status", class: "explorer-hint" });
  const source = make("p", { class: "explorer-hint explorer-source" });
  const fileField = make("input", { type: "file", id: "explorer-file", accept: ".csv,text/csv" });
  const fileHint = make("span", { class: "explorer-hint", role: "status" }, "A CSV; it stays in this browser.");
  const lawHint = make("p", { class: "explorer-hint" });
  const maskHint = make("p", { class: "explorer-hint", id: "explorer-mask-hint" }, "Causal only: α log j and flat logits are for causal attention.");
  const contentHint = make("p", { class: "explorer-hint", id: "explorer-content-hint" }, "Flat logits hide every token from itself, and with it what content adds there: it has no effect.");
  const matchHint = make("span", { class: "explorer-hint", id: "explorer-match-hint" });
  const matchButton = make("button", { type: "button", class: "explorer-button", id: "explorer-match", "aria-describedby": "explorer-match-hint" });
  const forces = Object.fromEntries(scheme.FORCES.map((force) => [force, forceControl(force)]));

  function build() {
    for (const field of scheme.FIELDS) {
      if (field.kind === "set") continue;
      controls.set(field.name, field.kind === "number" ? numberControl(field) : choiceControl(field));
    }
    matchButton.addEventListener("click", () => {
      const { tau, alpha } = scheme.matching(state, presets);
      change(state.encoding === "flat" ? { tau } : { alpha });
    });
    controls.set("match", {
      row: make("div", { class: "explorer-match" }, matchButton, matchHint), show: showMatch, disable: () => {},
    });
    const row = (name) => controls.get(name).row;
    for (const [name, hint] of [["mask", maskHint], ["content", contentHint]]) {
      row(name).append(hint);
      row(name).querySelector("select").setAttribute("aria-describedby", hint.id);
    }
    const figure = make(
      "div", { class: "explorer-figure" }, plotPlace, legend,
      make("div", { class: "explorer-read" }, make("label", { for: "explorer-token" }, "Read a token"), reader, reading),
    );
    const switches = make(
      "fieldset", { class: "explorer-forces" }, make("legend", {}, "Forces"),
      ...Object.values(forces).map((control) => control.row),
    );
    const groups = GROUPS.map(([title, names]) => make("fieldset", {}, make("legend", {}, title), ...names.map(row)));
    const form = make("form", { class: "explorer-form" }, make("div", { class: "explorer-model" }, row("model"), source, row("law"), lawHint), switches,
      make("div", { class: "explorer-groups" }, ...groups));
    form.addEventListener("submit", (event) => event.preventDefault());
    linkField.addEventListener("focus", () => linkField.select());
    const tools = make(
      "div", { class: "explorer-tools" },
      button("Download CSV", () => download(csv(), "text/csv", "csv")), button("Download PNG", downloadPicture),
      button("All defaults", () => apply(scheme.format(scheme.initialState(null), presets))),
      make("label", { for: "explorer-link" }, "Link to this view"), linkField, button("Copy link", copyLink), copied,
    );
    const file = make("div", { class: "explorer-tools explorer-own" }, make("label", { for: "explorer-file" }, "A measurement of your own"),
      fileField, fileHint, button("Without it", () => take(null)));
    fileField.addEventListener("change", () => fileField.files[0] && takeFile(fileField.files[0]));
    place.addEventListener("dragover", (event) => event.preventDefault());
    place.addEventListener("drop", (event) => {
      event.preventDefault();
      if (event.dataTransfer.files[0]) takeFile(event.dataTransfer.files[0]);
    });
    place.replaceChildren(refusedBox, figure, note, words, file, form, spoken, tools);
    place.tabIndex = -1;
    reader.addEventListener("input", () => read(Number(reader.value), true));
  }

  /* ------------------------------------------------------------------ a file of the reader's */

  async function takeFile(file) {
    try {
      take({ name: file.name, ...scheme.readCurves(await file.text()) });
    } catch (error) {
      fileHint.textContent = `Not shown: ${error.message}.`;
    }
  }

  function take(curves) {
    own = curves;
    fileHint.textContent = own ? `${own.name}: ${own.measured.length} tokens, drawn as measured.` : "A CSV; it stays in this browser.";
    if (!own) fileField.value = "";
    change(own ? { length: own.measured.length } : {});
  }

  const isOwn = () => own && own.measured.length === state.length;

  /** What is drawn beside the rollout, by the names of CURVES. */
  function beside() {
    const { contributions = null, "value-maps": maps = null } = isOwn() ? own : scheme.besideOf(state, presets);
    return { contributions, maps };
  }

  /* ------------------------------------------------------------------ state in, state out */

  function change(part) {
    addressed = true;
    state = scheme.fitted({ ...state, ...part }, presets);
    refresh();
    draw();
    settle();
  }

  /** Offer the network's own Σλ for τ, or Σλ - 1 for α. */
  function showMatch() {
    const { total, tau, alpha } = scheme.matching(state, presets);
    const flat = state.encoding === "flat";
    matchButton.textContent = flat ? "Set τ to Σλ" : "Set α to Σλ − 1";
    const cut = flat ? tau !== total : Math.abs(alpha + 1 - total) > 1e-9;
    matchHint.textContent = `Σλ = ${Number(total.toPrecision(4))}${cut ? ", beyond the slider: its end is taken" : ""}`;
  }

  /** Show the settings in the controls. */
  function refresh() {
    for (const [name, control] of controls) control.show(state[name]);
    const present = scheme.presentForces(state, presets);
    const causal = scheme.CAUSAL_ONLY.includes(state.encoding);
    const hidden = scheme.hidesDiagonal(state) && state.content !== "none";
    for (const force of scheme.FORCES) {
      const instead = force === "mask" ? CAUSAL_HINT : force === "content" && hidden ? HIDDEN_HINT : "not in these settings";
      forces[force].show(!state.off.includes(force), present[force], instead);
    }
    const shown = {
      lambda: state.mixing === "constant",
      lambda0: state.mixing === "decay",
      beta: state.mixing === "decay",
      slope: state.encoding === "decay" || (["alibi", "log"].includes(state.encoding) && state.slopes === "one"),
      slopes: state.encoding === "alibi" || state.encoding === "log",
      scale: ["alibi", "log"].includes(state.encoding) && state.slopes !== "one",
      alpha: state.encoding === "log-position",
      tau: state.encoding === "flat",
      match: causal,
      width: state.mask !== "causal",
      diagonal: state.content === "diagonal",
    };
    for (const [name, yes] of Object.entries(shown)) controls.get(name).row.hidden = !yes;
    controls.get("heads").disable(state.content === "all");
    controls.get("mask").disable(causal);
    maskHint.hidden = !causal;
    contentHint.hidden = !hidden;
    lawHint.textContent = LAW_HINT[state.law];
    const preset = scheme.presetOf(state, presets);
    const far = preset && preset.measured && !scheme.measuredOf(state, presets);
    const note = far ? `; the measured curve has ${preset.measured.length} tokens and is shown at that length` : "";
    source.textContent = preset ? `${preset.label}: ${preset.source}${note}.` : "";
  }

  /** Once nothing has moved for a while: put the settings in the address and say in words what is seen. */
  function settle() {
    clearTimeout(resting);
    resting = setTimeout(() => {
      const hash = scheme.format(state, presets);
      if (addressed && location.hash !== hash) replaceAddress(hash);
      linkField.value = location.href.split("#")[0] + hash;
      if (drawn && !unfinished) spoken.textContent = [...describeDrawn().map((pair) => pair.join(": ")), noteText()].filter(Boolean).join(". ");
    }, 400);
  }

  function replaceAddress(hash) {
    try {
      history.replaceState(null, "", hash);
    } catch {
      location.replace(hash); // some browsers refuse the history of pages from disk
    }
  }

  /** Take the settings from a hash. */
  function apply(hash) {
    addressed = true;
    const { state: asked, refused } = scheme.parse(hash, presets);
    state = asked;
    showRefused(refused, "left at its default");
    refresh();
    draw();
    settle();
  }

  function showRefused(refused, instead) {
    const items = refused.map(({ field, expected, received }) =>
      make("li", {}, make("strong", {}, field), `: expected ${expected}, received ${received}; ${fieldOf(field) ? instead : "ignored"}.`));
    refusedBox.replaceChildren(...(items.length ? [make("p", {}, "Some settings cannot be shown:"), make("ul", {}, ...items)] : []));
    refusedBox.hidden = !items.length;
  }

  const isSettings = (hash) => hash.includes("=");

  /* ------------------------------------------------------------------ the profile */

  function draw() {
    clearTimeout(waiting);
    cancelAnimationFrame(draw.frame || 0);
    const todo = plan();
    unfinished = false;
    if (todo.cost > AT_ONCE) {
      busy(true);
      unfinished = true;
      const sizes = plan("aligned"); // shown until then
      if (sizes.cost <= SLOW) drawNow(sizes);
      waiting = setTimeout(() => {
        if (sizes.cost > SLOW) drawNow(sizes);
        drawInSlices(todo);
      }, 150);
    } else if (todo.cost > SLOW) {
      busy(true);
      waiting = setTimeout(() => drawNow(todo), 150);
    } else {
      draw.frame = requestAnimationFrame(() => drawNow(todo));
    }
  }

  function busy(yes) {
    if (yes) place.setAttribute("aria-busy", "true");
    else place.removeAttribute("aria-busy");
    plotPlace.classList.toggle("explorer-busy", yes);
  }

  /** What is to be drawn by a law, or by sizes where that law takes too long, and its cost in operations. */
  function plan(law = state.law) {
    const by = (part) => ({ ...scheme.settingsOf({ ...state, ...part }, presets), law });
    const [settings, all] = [by({}), by({ off: [] })];
    if (!engine.affordable(settings)) return { ...plan("aligned"), instead: true };
    const present = scheme.presentForces(state, presets);
    const cut = state.off.some((force) => present[force]);
    const thin = cut && engine.affordable(all);
    const cost = engine.operations(settings) + (thin ? engine.operations(all) : 0);
    return { law, settings, all: thin ? all : null, without: cut && !thin, cost };
  }

  function* computed({ law, settings, all }) {
    return {
      law,
      profile: yield* engine.influenceSteps(settings),
      all: all ? yield* engine.influenceSteps(all) : null,
      sizes: law === "untrained" ? engine.influenceProfile(settings) : null,
      measured: isOwn() ? own.measured : scheme.measuredOf(state, presets),
      ...beside(),
      lambda: settings.lambda,
      bias: settings.bias,
    };
  }

  function drawNow(todo) {
    const began = performance.now();
    const steps = computed(todo);
    let step = steps.next();
    while (!step.done) step = steps.next();
    finish(todo, step.value, began);
  }

  /** Go on for SLICE milliseconds at a time, until done or until the settings change. */
  function drawInSlices(todo) {
    const began = performance.now();
    const steps = computed(todo);
    let count = 0;
    const go = () => {
      const until = performance.now() + SLICE;
      do {
        const { done, value } = steps.next();
        if (done) {
          unfinished = false;
          finish(todo, value, began);
          settle();
          return;
        }
        count += value;
      } while (performance.now() < until);
      legend.firstChild.textContent = `${ownLabel()} (law of untrained networks: ${Math.floor((100 * count) / todo.cost)}%)`;
      waiting = setTimeout(go, 0);
    };
    go();
  }

  function finish(todo, found, began) {
    drawn = { ...found, instead: todo.instead, without: todo.without, began, computed: performance.now() - began };
    drawPlot();
    showWords();
    showNote();
    if (!unfinished) busy(false);
    page.redraws += 1;
  }

  /** What there is to say of the law that is not in the plot. */
  function noteText() {
    if (drawn.instead) return `The law of untrained networks would take too long for these settings, and the plot adds sizes. It is shown for up to ${fitting()} tokens, and for more with fewer heads or layers`;
    if (drawn.without) return "The law of untrained networks with all forces would take too long here: its thin line is left out";
    return "";
  }

  const fitting = () => engine.longest(scheme.settingsOf(state, presets));

  function showNote() {
    const text = noteText();
    const parts = text ? [make("p", {}, `${text}.`)] : [];
    if (drawn.instead) {
      const n = fitting();
      parts.push(button(`Show ${n} tokens`, () => change({ length: n })));
    }
    note.replaceChildren(...parts);
    note.hidden = !text;
  }

  function describeDrawn() {
    const { profile, lambda, measured, sizes, bias, contributions, maps } = drawn;
    const others = Object.entries({ Contributions: contributions, "Value maps": maps }).filter(([, curve]) => curve);
    return scheme.describe(Array.from(profile), lambda, measured, sizes, bias, Object.fromEntries(others));
  }

  function showWords() {
    const pairs = describeDrawn();
    words.replaceChildren(...pairs.map(([term, text]) => make("div", {}, make("dt", {}, term), make("dd", {}, text))));
    plotPlace.setAttribute("aria-label", `Influence of each token. ${pairs.slice(0, 4).map((pair) => pair.join(": ")).join(". ")}.`);
    read(Math.min(Number(reader.value), drawn.profile.length), false);
  }

  /* ------------------------------------------------------------------ the plot */

  const colour = (name) => getComputedStyle(place).getPropertyValue(`--explorer-${name}`).trim();
  const CURVES = [
    ["uniform", "uniform 1/n", [2, 4], 1],
    ["all", "with all forces", [], 1.5],
    ["sizes", "adding sizes", [], 1.5],
    ["maps", "value maps", [2, 3], 1.75],
    ["contributions", "contributions", [10, 3, 2, 3], 1.75],
    ["measured", "measured", [7, 4], 1.75],
    ["profile", "rollout", [], 2.25],
  ];
  const curveOf = (name) => (name === "sizes" && drawn.all ? null : drawn[name]); // one thin line at a time
  let plot = null;

  const positive = (x) => (x === null || x === undefined ? x : state.axis === "log" && !(x >= FLOOR) ? null : x);

  function dataOf() {
    const n = drawn.profile.length;
    const x = Array.from({ length: n }, (_, i) => i + 1);
    const column = (curve) => (curve ? Array.from(curve, positive) : x.map(() => null));
    return [x, x.map(() => 1 / n), ...CURVES.slice(1).map(([name]) => column(curveOf(name)))];
  }

  function limits() {
    const n = drawn.profile.length;
    let high = 1 / n;
    let low = 1 / n;
    for (const curve of CURVES.map(([name]) => curveOf(name))) {
      if (!curve) continue;
      for (const x of curve) {
        if (x > high) high = x;
        if (x < low && x >= FLOOR) low = x;
      }
    }
    return state.axis === "log" ? [low / 1.6, high * 1.6] : [0, high * 1.06];
  }

  /** Powers of ten on a logarithmic axis, at most eight of them. */
  function powersOfTen(u, axis, low, high) {
    const [first, last] = [Math.ceil(Math.log10(low)), Math.floor(Math.log10(high))];
    const every = Math.ceil((last - first + 1) / 8) || 1;
    const powers = [];
    for (let power = last; power >= first; power -= every) powers.unshift(10 ** power);
    return powers.length > 1 ? powers : [low * 1.1, Math.sqrt(low * high), high / 1.1];
  }

  /** Mark the trough with a ring and the mean position with a triangle on the axis. */
  function drawMarks(u) {
    const shape = engine.uShape(drawn.profile);
    const { top, height } = u.bbox;
    const unit = u.ctx.canvas.width / u.width;
    const at = (token) => u.valToPos(token, "x", true);
    const mean = at(1 + engine.meanPosition(drawn.profile) * (drawn.profile.length - 1));
    u.ctx.save();
    u.ctx.strokeStyle = u.ctx.fillStyle = colour("profile");
    u.ctx.lineWidth = 1.75 * unit;
    u.ctx.setLineDash([]);
    if (shape.present && positive(shape.trough) !== null) {
      u.ctx.beginPath();
      u.ctx.arc(at(shape.index + 1), u.valToPos(shape.trough, "y", true), 5 * unit, 0, 2 * Math.PI);
      u.ctx.stroke();
    }
    u.ctx.beginPath();
    u.ctx.moveTo(mean, top + height);
    u.ctx.lineTo(mean - 5 * unit, top + height + 8 * unit);
    u.ctx.lineTo(mean + 5 * unit, top + height + 8 * unit);
    u.ctx.fill();
    u.ctx.restore();
    if (drawn.milliseconds === undefined) drawn.milliseconds = performance.now() - drawn.began;
  }

  /** A tick in words: powers of ten on a logarithmic axis, percentages otherwise. */
  function ticks(u, values) {
    return values.map((v) => {
      if (v === null || v === undefined) return "";
      if (state.axis === "log" && v < 1e-4) return scheme.share(v).replace(/^1\.0 × /, "");
      return `${Number((100 * v).toPrecision(3))}%`;
    });
  }

  function makePlot() {
    const font = `12px ${getComputedStyle(document.body).fontFamily}`;
    const axis = (more) => ({
      stroke: () => colour("text"), grid: { stroke: () => colour("grid"), width: 1 }, ticks: { stroke: () => colour("grid"), width: 1 },
      font, labelFont: font, ...more,
    });
    plot = new window.uPlot(
      {
        width: 300, height: 260,
        legend: { show: false },
        cursor: { drag: { x: false, y: false }, points: { size: 8 }, y: false },
        scales: {
          x: { time: false, range: (u, low, high) => [low, high] },
          y: { distr: state.axis === "log" ? 3 : 1, range: limits },
        },
        axes: [
          axis({ label: "token", labelSize: 22, size: 34, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000] }),
          axis({ label: "influence on the last token", labelSize: 24, size: 62, values: ticks, ...(state.axis === "log" ? { splits: powersOfTen, filter: (u, values) => values } : {}) }),
        ],
        series: [
          {},
          ...CURVES.map(([name, label, dash, width]) => ({
            label, dash, width, stroke: () => colour(name), points: { show: (u) => name === "profile" && u.data[0].length <= 32, fill: () => colour(name) },
          })),
        ],
        hooks: { draw: [drawMarks], setCursor: [(u) => u.cursor.idx !== null && u.cursor.idx !== undefined && u.cursor.event && read(u.cursor.idx + 1, false)] },
      },
      dataOf(),
      plotPlace,
    );
    plot.axisKind = state.axis;
    fit();
  }

  function drawPlot() {
    if (plot && plot.axisKind !== state.axis) {
      plot.destroy();
      plot = null;
    }
    if (plot) plot.setData(dataOf());
    else makePlot();
    const there = CURVES.filter(([name]) => name === "uniform" || curveOf(name));
    const entries = there.map(([name, label]) => make("li", { class: `explorer-curve-${name}` }, name === "profile" ? ownLabel() : name === "measured" && isOwn() ? own.name : label));
    const marks = [make("li", { class: "explorer-mark-mean" }, "mean position")];
    if (engine.uShape(drawn.profile).present) marks.unshift(make("li", { class: "explorer-mark-trough" }, "trough"));
    legend.replaceChildren(...entries.reverse(), ...marks);
  }

  function ownLabel() {
    const law = drawn.law === "untrained" ? "law of untrained networks" : state.law === "untrained" ? "rollout, adding sizes" : "rollout";
    return cutForces().length ? `${law} without ${cutForces().join(", ")}` : law;
  }

  function cutForces() {
    const present = scheme.presentForces(state, presets);
    return state.off.filter((force) => present[force]).map((force) => FORCE_TEXT[force][0].toLowerCase());
  }

  function fit() {
    if (!plot) return;
    const width = Math.max(200, Math.floor(plotPlace.clientWidth));
    plot.setSize({ width, height: width < 480 ? 230 : 320 });
  }

  /** Say what one token has, and mark it in the plot. */
  function read(token, mark) {
    if (!drawn) return;
    const n = drawn.profile.length;
    const at = Math.min(Math.max(token, 1), n);
    reader.max = n;
    reader.value = at;
    const measured = drawn.measured ? `, measured ${scheme.share(drawn.measured[at - 1])}` : "";
    reading.textContent = `Token ${at} of ${n}: ${scheme.share(drawn.profile[at - 1])}${measured}`;
    reader.setAttribute("aria-valuetext", reading.textContent);
    if (mark && plot) plot.setCursor({ left: plot.valToPos(at, "x"), top: plot.valToPos(drawn.profile[at - 1], "y") }, false);
  }

  /* ------------------------------------------------------------------ out of the page */

  const csv = () => engine.profileText(drawn.profile);
  const fileName = (ending) => `profile-${state.model || "explorer"}-${drawn.law === "untrained" ? "untrained-" : ""}${drawn.profile.length}.${ending}`;

  function download(content, type, ending) {
    const blob = content instanceof Blob ? content : new Blob([content], { type });
    const address = URL.createObjectURL(blob);
    const link = make("a", { href: address, download: fileName(ending) });
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(address), 1000);
  }

  /** The plot with its curves named and the settings below it, on the page's ground. */
  function picture() {
    const from = plot.ctx.canvas;
    const unit = from.width / plot.width;
    const curves = legend.querySelectorAll("[class^='explorer-curve']");
    const entries = Array.from(curves, (entry) => [entry.className.replace("explorer-curve-", ""), entry.textContent]);
    const canvas = make("canvas", { width: from.width, height: from.height + Math.round(unit * (18 * entries.length + 34)) });
    const context = canvas.getContext("2d");
    context.fillStyle = colour("ground");
    context.fillRect(0, 0, canvas.width, canvas.height);
    context.drawImage(from, 0, 0);
    context.scale(unit, unit);
    context.font = `12px ${getComputedStyle(document.body).fontFamily}`;
    let y = plot.height + 14;
    for (const [name, text] of entries) {
      context.strokeStyle = colour(name);
      context.lineWidth = 2;
      context.setLineDash(CURVES.find((curve) => curve[0] === name)[2]);
      context.beginPath();
      context.moveTo(12, y - 4);
      context.lineTo(40, y - 4);
      context.stroke();
      context.fillStyle = colour("text");
      context.fillText(text, 48, y);
      y += 18;
    }
    context.fillText(scheme.format(state, presets), 12, y + 4, plot.width - 24);
    return canvas;
  }

  function downloadPicture() {
    picture().toBlob((blob) => download(blob, "image/png", "png"), "image/png");
  }

  async function copyLink() {
    linkField.value = location.href.split("#")[0] + scheme.format(state, presets);
    linkField.select();
    try {
      await navigator.clipboard.writeText(linkField.value);
      copied.textContent = "Copied.";
    } catch {
      copied.textContent = "Selected: copy it with your keyboard.";
    }
    setTimeout(() => (copied.textContent = ""), 4000);
  }

  /* ------------------------------------------------------------------ start */

  const bring = (behavior) => place.scrollIntoView({ behavior, block: "start" });

  /** Links on this page with settings: show them, and bring the plot into view. */
  function follow(event) {
    const link = event.target.closest && event.target.closest("a[href^='#']");
    if (!link || !isSettings(link.getAttribute("href"))) return;
    if (event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
    event.preventDefault();
    const hash = link.getAttribute("href");
    try {
      history.pushState(null, "", hash);
    } catch {
      replaceAddress(hash);
    }
    apply(hash);
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    bring(still ? "instant" : "smooth");
    place.focus({ preventScroll: true });
  }

  const page = {
    redraws: 0,
    get state() { return state; },
    get drawn() { return drawn; },
    csv, picture, change, take,
  };
  window.PosbiasExplorer = page;

  build();
  const asked = isSettings(location.hash);
  apply(asked ? location.hash : START);
  addressed = asked; // else the page keeps its address: that of one of its headings, or none
  const returns = ["reload", "back_forward"].includes(performance.getEntriesByType("navigation")[0]?.type);
  if (asked && !returns) {
    bring("instant");
    window.addEventListener("load", () => bring("instant")); // pictures above may have come since
  }
  document.addEventListener("click", follow);
  window.addEventListener("hashchange", () => {
    if (!isSettings(location.hash) || location.hash === scheme.format(state, presets)) return;
    apply(location.hash);
    bring("instant");
  });
  new ResizeObserver(fit).observe(plotPlace);
  new MutationObserver(() => plot && plot.redraw(false)).observe(document.documentElement, { attributeFilter: ["data-theme"] });
})();

/* Eight documents in one prompt, coloured by what each did for the model's answer, while the reader moves what is asked. */
(function () {
  "use strict";

  const contexts = window.PosbiasDocuments;
  const place = document.getElementById("explorer-documents");
  if (!place || !contexts) return;

  const WAYS = {
    deletion: ["deleting it", "what the answer's log-probability loses without the document, in nats"],
    influence: ["influence", "the document's share of the gradient"],
    contributions: ["contributions", "the document's share of what the last token is made of"],
    attention: ["attention", "the document's share of the attention, rolled out"],
  };

  /** What each document did when the one at `asked` was asked for; by place, divided by what its place has otherwise. */
  function values(context, way, asked, byPlace) {
    const rows = context[way];
    if (way === "deletion") return rows[asked].map((x) => Math.max(0, -x));
    if (!byPlace) return rows[asked];
    const others = rows.filter((row, k) => k !== asked);
    return rows[asked].map((x, j) => (x * others.length) / others.reduce((sum, row) => sum + row[j], 0));
  }

  function make(tag, attributes, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  }

  const choice = (id, options) => make("select", { id: `explorer-documents-${id}` },
    ...options.map(([value, text]) => make("option", { value }, text)));
  const which = choice("prompt", contexts.map((_, k) => [k, `prompt ${k + 1}`]));
  const way = choice("way", Object.entries(WAYS).map(([name, [label]]) => [name, label]));
  const by = choice("by", [["raw", "as it is"], ["place", "by place: divided by what the place has"]]);
  const asked = make("input", { type: "range", id: "explorer-documents-asked", min: 1, max: contexts[0].documents.length, step: 1, value: 3 });
  const said = make("p", { class: "explorer-documents-said", role: "status" });
  const list = make("ol", { class: "explorer-documents-list" });
  const labelled = (text, field) => make("div", { class: "explorer-field explorer-choice" }, make("label", { for: field.id }, text), field);

  function draw() {
    const context = contexts[which.value];
    const gold = Number(asked.value) - 1;
    by.disabled = way.value === "deletion";
    const found = values(context, way.value, gold, by.value === "place");
    const most = Math.max(...found);
    const source = context.source[gold];
    const write = (x) => (way.value === "deletion" ? x.toFixed(1) : by.value === "place" ? `× ${x.toFixed(2)}` : `${Math.round(100 * x)}%`);
    list.replaceChildren(...context.documents.map((text, k) => {
      const tags = [k === gold && "asked for", k === source && "answer given", k === found.indexOf(most) && "most"].filter(Boolean);
      const card = make("li", { class: k === gold ? "explorer-document explorer-gold" : "explorer-document", style: `--share: ${Math.round((100 * found[k]) / most)}%` },
        make("span", { class: "explorer-document-value" }, write(found[k])), make("span", {}, text),
        make("span", { class: "explorer-document-tags" }, tags.join(" · ")));
      card.addEventListener("click", () => { asked.value = k + 1; draw(); });
      return card;
    }));
    asked.setAttribute("aria-valuetext", `document ${gold + 1}`);
    const given = source < 0 ? "something that is in no document" : `${context.answers[source]}, which is in document ${source + 1}`;
    const right = source === gold ? "That is right." : `Document ${gold + 1} has ${context.answers[gold]}.`;
    said.replaceChildren(make("strong", {}, `${context.begin[gold]} …`), ` SmolLM2 answers ${given}. ${right} Colour: ${WAYS[way.value][1]}.`);
  }

  place.replaceChildren(
    make("div", { class: "explorer-groups" }, labelled("Prompt", which), labelled("Colour by", way), labelled("Shown", by)),
    make("div", { class: "explorer-read" }, make("label", { for: asked.id }, "Ask for document"), asked), said, list,
  );
  for (const field of [which, way, by, asked]) field.addEventListener("input", draw);
  draw();
  window.PosbiasDocumentsPage = { values };
})();

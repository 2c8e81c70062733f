/* Two choices above the list of verdicts. A choice hides all lines but those of one source or one verdict; without this
   script the list is whole. The page loads no other script for them, so that they work offline and from a file.
   A claim with several parts has a row of its own, its head, above them: a row without a verdict. It is shown
   with any of its parts, and has their shade. */
const table = document.querySelector(".tag_verdicts table");
const [SOURCE, VERDICT] = [0, 2];
const heads = new Map();
const lines = [];
let head = null;
let claims = 0;
for (const row of table.tBodies[0].rows) {
  const verdict = row.cells[VERDICT].querySelector("strong")?.textContent;
  const source = row.cells[SOURCE].textContent.trim();
  const part = row.cells[1].textContent.trim().startsWith("–");
  if (!part) claims += 1;
  row.classList.add(claims % 2 ? "odd-claim" : "even-claim");
  row.classList.toggle("part", part);
  if (!verdict) {
    head = { parts: [] };
    heads.set(row, head);
  } else {
    const line = { row, words: [source, verdict] };
    lines.push(line);
    if (part) head.parts.push(line);
  }
}

/** A labelled choice among all words of a kind, each with its number of lines. */
function choice(name, kind) {
  const label = document.createElement("label");
  const select = document.createElement("select");
  const words = lines.map((line) => line.words[kind]);
  select.add(new Option(`all (${lines.length})`, ""));
  for (const each of [...new Set(words)].sort()) {
    select.add(new Option(`${each} (${words.filter((other) => other === each).length})`, each));
  }
  select.onchange = show;
  label.append(`${name} `, select);
  return { kind, label, select };
}

/** Show the lines that meet both choices, with their heads, and say how many there are. */
function show() {
  for (const { row, words } of lines) {
    row.hidden = choices.some(({ kind, select }) => select.value && words[kind] !== select.value);
  }
  for (const [row, { parts }] of heads) row.hidden = parts.every((line) => line.row.hidden);
  said.textContent = `${lines.filter((line) => !line.row.hidden).length} of ${lines.length} lines`;
}

/** Open the box, and show the whole list again, if a link leads to a line that is hidden. */
function reveal() {
  const row = document.getElementById(location.hash.slice(1))?.closest("tr");
  if (!row) return;
  for (let box = row.closest("details"); box; box = box.parentElement.closest("details")) box.open = true;
  if (row.hidden) {
    for (const { select } of choices) select.value = "";
    show();
  }
  row.scrollIntoView();
}

const choices = [choice("Source", 0), choice("Verdict", 1)];
const said = document.createElement("output");
const bar = document.createElement("p");
bar.className = "verdict-choices";
bar.append(...choices.map(({ label }) => label), said);
(table.closest(".sd-card-body") ?? table.closest(".cell_output")).prepend(bar);
window.addEventListener("hashchange", reveal);
show();
reveal();

/* Two choices above the list of verdicts. A choice hides all lines but those of one source or one verdict; without this
   script the list is whole. The page loads no other script for them, so that they work offline and from a file. */
const table = document.querySelector(".tag_verdicts table");
const lines = [...table.tBodies[0].rows];

/** What a line has in a column: the word in bold if there is one. */
function word(line, column) {
  const cell = line.cells[column];
  return (cell.querySelector("strong") ?? cell).textContent.trim();
}

/** A labelled choice among all words of a column, each with its number of lines. */
function choice(name, column) {
  const label = document.createElement("label");
  const select = document.createElement("select");
  const words = lines.map((line) => word(line, column));
  select.add(new Option(`all (${lines.length})`, ""));
  for (const each of [...new Set(words)].sort()) {
    select.add(new Option(`${each} (${words.filter((other) => other === each).length})`, each));
  }
  select.onchange = show;
  label.append(`${name} `, select);
  return { column, label, select };
}

/** Show the lines that meet both choices, and say how many there are. */
function show() {
  for (const line of lines) {
    line.hidden = choices.some(({ column, select }) => select.value && word(line, column) !== select.value);
  }
  said.textContent = `${lines.filter((line) => !line.hidden).length} of ${lines.length} lines`;
}

/** Show the whole list again if a link leads to a line that is hidden. */
function reveal() {
  const line = document.getElementById(location.hash.slice(1))?.closest("tr");
  if (line?.hidden) {
    for (const { select } of choices) select.value = "";
    show();
    line.scrollIntoView();
  }
}

const choices = [choice("Source", 0), choice("Verdict", 2)];
const said = document.createElement("output");
const bar = document.createElement("p");
bar.className = "verdict-choices";
bar.append(...choices.map(({ label }) => label), said);
table.closest(".cell_output").prepend(bar);
window.addEventListener("hashchange", reveal);
show();

// Displayed formulas that are wider than a small window are made smaller, to 0.45 of their size at most; wider ones scroll.
(() => {
  function fit() {
    for (const formula of document.querySelectorAll("div.math")) {
      formula.style.fontSize = "";
      const shown = formula.querySelector("mjx-container");
      for (let size = 1; shown && shown.scrollWidth > shown.clientWidth && size > 0.45; ) {
        size = Math.max(0.45, (0.98 * size * shown.clientWidth) / shown.scrollWidth);
        formula.style.fontSize = `${size}em`;
      }
    }
  }
  window.addEventListener("resize", fit);
  document.addEventListener("toggle", fit, true); // a box was opened
  window.addEventListener("load", () => window.MathJax?.startup?.promise.then(fit));
})();

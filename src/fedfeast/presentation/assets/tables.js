/* A table that is wider than its box fades out where there is more of it, and can be scrolled with keys too. */
"use strict";
(() => {
  function tell(box) {
    const hidden = box.scrollWidth - box.clientWidth;
    box.classList.toggle("more-left", box.scrollLeft > 1);
    box.classList.toggle("more-right", box.scrollLeft < hidden - 1);
    if (hidden > 1) {
      box.tabIndex = 0;
      box.setAttribute("role", "region");
      box.setAttribute("aria-label", "A table that scrolls sideways");
    } else {
      for (const name of ["tabindex", "role", "aria-label"]) box.removeAttribute(name);
    }
  }
  const sizes = new ResizeObserver((entries) => {
    for (const { target } of entries) tell(target.closest(".scroll"));
  });
  function watchAll() {
    for (const box of document.querySelectorAll(".scroll")) {
      box.addEventListener("scroll", () => tell(box), { passive: true });
      sizes.observe(box);
      sizes.observe(box.firstElementChild);
    }
  }
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", watchAll);
  else watchAll();
})();

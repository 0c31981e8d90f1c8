// Figures that move: a slider and a button choose a picture. Without this script the page shows a still.
"use strict";
for (const figure of document.querySelectorAll("figure.motion")) {
  const picture = figure.querySelector("img");
  const frames = JSON.parse(figure.dataset.frames); // [[file, label, alternative text], ...]
  const controls = document.createElement("div");
  const play = document.createElement("button");
  const slider = document.createElement("input");
  const says = document.createElement("output");
  let timer = null;
  controls.className = "controls";
  play.type = "button";
  Object.assign(slider, { type: "range", min: 0, max: frames.length - 1, step: 1 });
  slider.setAttribute("aria-label", figure.dataset.what);

  function show(index) {
    const [file, label, alternative] = frames[index];
    figure.style.minHeight = `${figure.offsetHeight}px`; // the page below does not jump back
    picture.src = file;
    picture.alt = alternative;
    slider.value = index;
    slider.setAttribute("aria-valuetext", label);
    says.textContent = label;
  }
  function stop() {
    clearInterval(timer);
    timer = null;
    play.textContent = "Play";
  }
  function start() {
    if (Number(slider.value) === frames.length - 1) show(0);
    play.textContent = "Pause";
    timer = setInterval(() => {
      const next = Number(slider.value) + 1;
      if (next < frames.length) show(next);
      else stop();
    }, 900);
  }
  play.addEventListener("click", () => (timer === null ? start() : stop()));
  slider.addEventListener("input", () => { stop(); show(Number(slider.value)); });
  stop();
  show(Number(figure.dataset.first));
  controls.append(play, slider, says);
  picture.after(controls);
}

// What is wider than the page can be scrolled by the keyboard: programs, tables.
for (const part of document.querySelectorAll("pre, .table-wrapper")) {
  if (part.scrollWidth > part.clientWidth) part.tabIndex = 0;
}

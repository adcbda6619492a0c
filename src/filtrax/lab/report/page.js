"use strict";

// Brings the page to life: reads the data, fills the sections.
(() => {
  const { html } = Charts;
  const data = JSON.parse(document.getElementById("data").textContent);
  const contentOf = (id) => document.querySelector(`#${id} [data-part="content"]`);

  function say(id, text) {
    contentOf(id).replaceChildren(html("p", { class: "missing" }, text));
  }

  function addCharts(parent, descriptions) {
    return descriptions.map((description) => {
      const figure = html("figure");
      parent.append(figure);
      return Charts.mount(figure, description);
    });
  }

  function showLearning() {
    if (!data.learning.length) say("learning", "No epoch has been recorded yet.");
    for (const { stage, charts } of data.learning) {
      const grid = html("div", { class: "grid" });
      contentOf("learning").append(html("h3", {}, stage[0].toUpperCase() + stage.slice(1)), grid);
      addCharts(grid, charts);
    }
  }

  function showCharts(id, descriptions, otherwise) {
    if (descriptions.length) addCharts(contentOf(id), descriptions);
    else say(id, otherwise);
  }

  // A section that has nothing to say in this report is left out.
  function show(id, shown) {
    document.getElementById(id).hidden = !shown;
    document.querySelector(`nav a[href="#${id}"]`).hidden = !shown;
  }

  // Charts of a section that follow the player. Where a sequence has none, the section says so, or
  // is left out if it has no words for it.
  class Following {
    constructor(id, key, otherwise) {
      Object.assign(this, { id, key, otherwise, charts: [] });
    }

    onSequence(player, sequence, number) {
      const descriptions = sequence[this.key];
      const which = document.querySelector(`#${this.id} [data-part="which"]`);
      which.textContent = `sequence ${number} of ${player.name}`;
      show(this.id, descriptions.length || this.otherwise);
      if (!descriptions.length) {
        this.charts = [];
        say(this.id, this.otherwise);
      } else if (this.charts.length === descriptions.length) {
        this.charts.forEach((chart, i) => chart.describe(descriptions[i]));
      } else {
        contentOf(this.id).replaceChildren();
        this.charts = addCharts(contentOf(this.id), descriptions);
      }
    }

    onStep(step) {
      for (const chart of this.charts) chart.moveCursor(step);
    }
  }

  const following = [
    new Following("measurements", "measured", ""),
    new Following("process-noise", "processNoise", "Process noise was not recorded for this run."),
  ];
  const listener = {
    onSequence: (...chosen) => following.forEach((section) => section.onSequence(...chosen)),
    onStep: (step) => following.forEach((section) => section.onStep(step)),
  };

  function showSequences() {
    const missing = "No run has been evaluated yet: sequences are shown once training is over.";
    if (data.players.length) {
      new Player(contentOf("sequences"), data.players, data.images, listener);
    } else {
      contentOf("sequences").classList.remove("player");
      say("sequences", missing);
      say("process-noise", missing);
    }
  }

  function showPaths() {
    show("paths", data.paths.charts.length);
    addCharts(contentOf("paths"), data.paths.charts);
    document.querySelector('#paths [data-part="summaries"]').append(
      ...data.paths.summaries.map((text) => html("p", {}, text)),
    );
  }

  function showSensorNoise() {
    const found = data.sensorNoise.length;
    const other = data.players.some(({ sequences }) => sequences.some(({ measured }) => measured.length));
    show("sensor-noise", found || !other);
    showCharts("sensor-noise", data.sensorNoise, "No run recorded predicted sensor noise and visible pixels.");
  }

  showLearning();
  showSequences();
  showPaths();
  showSensorNoise();
  showCharts("calibration", data.calibration, "No run recorded calibration.");
})();

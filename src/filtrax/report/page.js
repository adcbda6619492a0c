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

  // The charts of process noise follow the player.
  const processNoise = {
    charts: [],

    onSequence(player, sequence, number) {
      const which = document.querySelector('#process-noise [data-part="which"]');
      which.textContent = `sequence ${number} of ${player.name}`;
      if (!sequence.processNoise.length) {
        this.charts = [];
        say("process-noise", "Process noise was not recorded for this run.");
      } else if (this.charts.length === sequence.processNoise.length) {
        this.charts.forEach((chart, i) => chart.describe(sequence.processNoise[i]));
      } else {
        contentOf("process-noise").replaceChildren();
        this.charts = addCharts(contentOf("process-noise"), sequence.processNoise);
      }
    },

    onStep(step) {
      for (const chart of this.charts) chart.moveCursor(step);
    },
  };

  function showSequences() {
    const missing = "No run has been evaluated yet: sequences are shown once training is over.";
    if (data.players.length) {
      new Player(contentOf("sequences"), data.players, data.images, processNoise);
    } else {
      contentOf("sequences").classList.remove("player");
      say("sequences", missing);
      say("process-noise", missing);
    }
  }

  showLearning();
  showSequences();
  showCharts("sensor-noise", data.sensorNoise, "No run recorded predicted sensor noise and visible pixels.");
  showCharts("calibration", data.calibration, "No run recorded calibration.");
})();

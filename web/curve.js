/* A metric against length, log axes, several jobs overlaid, error bars, the models' own context lengths.
 * Error bars and context lines are plugins of ours. */

import { curvePath } from '/api.js';
import { logRange, xTicks, yTicks } from '/axes.js';
import { Figure } from '/figure.js';
import { CURVE_METRICS, METRICS, count, measureText } from '/format.js';
import { curveCsv } from '/series.js';
import { MARKERS, slotOf } from '/slots.js';

/* -- plugins ---------------------------------------------------------------------------------------- */

/* Value ± stderr as a bar with caps, under the markers. */
export const errorBars = {
	id: 'errorBars',
	beforeDatasetsDraw(chart) {
		const { ctx, chartArea, scales } = chart;
		ctx.save();
		ctx.beginPath();
		ctx.rect(chartArea.left, chartArea.top, chartArea.width, chartArea.height);
		ctx.clip();
		ctx.lineWidth = 1.5;
		for (const dataset of chart.data.datasets) {
			ctx.strokeStyle = dataset.borderColor;
			ctx.beginPath();
			for (const p of dataset.data) {
				if (!(p.se > 0))
					continue;
				const x = scales.x.getPixelForValue(p.x);
				const top = scales.y.getPixelForValue(p.y + p.se);
				const bottom = scales.y.getPixelForValue(Math.max(p.y - p.se, scales.y.min));
				ctx.moveTo(x, top);
				ctx.lineTo(x, bottom);
				ctx.moveTo(x - 4, top);
				ctx.lineTo(x + 4, top);
				ctx.moveTo(x - 4, bottom);
				ctx.lineTo(x + 4, bottom);
			}
			ctx.stroke();
		}
		ctx.restore();
	},
};

/* A dashed vertical line at each context length that the drawn models declare. */
const contextLines = {
	id: 'contextLines',
	beforeDatasetsDraw(chart, _, options) {
		const { ctx, chartArea, scales } = chart;
		ctx.save();
		ctx.strokeStyle = ctx.fillStyle = options.color;
		ctx.font = `11px ${chart.options.font.family}`;
		ctx.setLineDash([3, 4]);
		let row = 0; /* labels take turns, so that near lines can both be read */
		for (const context of options.contexts ?? []) {
			if (context <= scales.x.min || context >= scales.x.max)
				continue;
			const x = Math.round(scales.x.getPixelForValue(context)) + 0.5;
			ctx.beginPath();
			ctx.moveTo(x, chartArea.top);
			ctx.lineTo(x, chartArea.bottom);
			ctx.stroke();
			const text = `context ${context}`;
			const right = x + 5 + ctx.measureText(text).width < chartArea.right;
			ctx.textAlign = right ? 'left' : 'right';
			ctx.fillText(text, right ? x + 5 : x - 5, chartArea.top + 11 + 14 * (row++ % 2));
		}
		ctx.restore();
	},
};

/* -- the figure ------------------------------------------------------------------------------------- */

/* Every x of the drawn points, ascending: Map x -> its words. */
function placesOf(all, metric) {
	const points = all.flatMap((s) => s.points(metric)).sort((a, b) => a.x - b.x);
	return new Map(points.map((p) => [p.x, p.label]));
}

/* Candidates for ticks: the lengths themselves; for positions, powers of two. */
function tickPlaces(places, metric) {
	const all = [...places.keys()];
	if (!METRICS[metric].byPosition)
		return all;
	return [...Array(40).keys()].map((i) => 2 ** i).filter((x) => x >= all[0] && x <= all.at(-1));
}

export class Curve extends Figure {
	choices() {
		return CURVE_METRICS.map((m) => [m, METRICS[m].label]);
	}

	has(series, metric) {
		return series.has(metric);
	}

	title() {
		return METRICS[this.metric].title;
	}

	describe() {
		return `${METRICS[this.metric].label} against length in tokens`;
	}

	drawable() {
		return this.all.some((s) => s.points(this.metric).length > 0);
	}

	/* What the x axis is. */
	place() {
		return METRICS[this.metric].byPosition ? 'Position' : 'Length';
	}

	svgPath() {
		return METRICS[this.metric].byPosition ? null : curvePath(this.all.map((s) => s.id), this.metric);
	}

	csv() {
		return curveCsv(this.all, this.metric);
	}

	table() {
		const rows = [...placesOf(this.all, this.metric)].map(([x, words]) => [words, ...this.all.map((s) => {
			const p = s.points(this.metric).find((q) => q.x === x);
			return p ? measureText(p.y, p.se) : '–';
		})]);
		return [this.place(), rows];
	}

	datasets(colours) {
		return this.all.map((s) => {
			const slot = slotOf(s.id);
			const colour = colours.get(`--series-${slot}`);
			return {
				label: s.label, data: s.points(this.metric), borderColor: colour, borderWidth: 2,
				backgroundColor: slot >= 4 ? colours.panel : colour, borderDash: slot >= 4 ? [6, 4] : [],
				pointStyle: MARKERS[slot % 4], pointRadius: 4.5, pointHoverRadius: 6, pointBorderWidth: 2,
				pointBorderColor: colour, tension: 0, clip: 8,
			};
		});
	}

	chart(colours) {
		const points = this.all.flatMap((s) => s.points(this.metric));
		const places = placesOf(this.all, this.metric);
		const [xMin, xMax] = logRange([...places.keys()], [...places.keys()], 0.04);
		const [yMin, yMax] = logRange(points.map((p) => Math.max(p.y - (p.se ?? 0), p.y / 2)),
			points.map((p) => p.y + (p.se ?? 0)), 0.08);
		const contexts = [...new Set(this.all.map((s) => s.context).filter((c) => c > 0))];
		const xs = tickPlaces(places, this.metric);
		return {
			type: 'line', data: { datasets: this.datasets(colours) }, plugins: [contextLines, errorBars],
			options: this.options(colours, { xs, xMin, xMax, yMin, yMax, contexts }),
		};
	}

	options(colours, { xs, xMin, xMax, yMin, yMax, contexts }) {
		const family = getComputedStyle(document.body).fontFamily;
		const ticks = { color: colours.quiet, autoSkip: false, maxRotation: 0, minRotation: 0 };
		const grid = { color: colours.line, borderColor: colours.line, tickLength: 4 };
		const title = (text) => ({ display: true, text, color: colours.quiet, font: { family, size: 12 } });
		const toTicks = (values) => values.map((value) => ({ value }));
		return {
			animation: false, responsive: true, maintainAspectRatio: false, font: { family },
			interaction: { mode: 'nearest', axis: 'x', intersect: false },
			layout: { padding: { top: 4, right: 6 } },
			scales: {
				x: {
					type: 'logarithmic', min: xMin, max: xMax, grid, title: title(`${this.place()} (tokens)`),
					ticks: { ...ticks, callback: (v) => String(v) },
					afterBuildTicks: (axis) => {
						axis.ticks = toTicks(xTicks(xs, xMin, xMax, axis.chart.width - 76));
					},
				},
				y: {
					type: 'logarithmic', min: yMin, max: yMax, grid, title: title(METRICS[this.metric].label),
					ticks: { ...ticks, callback: (v) => Number(v.toPrecision(6)).toLocaleString('en-US') },
					afterBuildTicks: (axis) => {
						axis.ticks = toTicks(yTicks(yMin, yMax));
					},
				},
			},
			plugins: {
				legend: { display: false },
				contextLines: { contexts, color: colours.quiet },
				tooltip: this.tips(colours),
			},
		};
	}

	tips(colours) {
		return this.tooltip(colours, {
			itemSort: (a, b) => b.parsed.y - a.parsed.y,
			callbacks: {
				title: (items) => (items.length ? `${this.place()} ${items[0].raw.label}` : ''),
				label: (item) => {
					const { y, se, n } = item.raw;
					const value = measureText(y, se) + (n ? `   n ${count(n)}` : '');
					const { label } = item.dataset;
					return item.chart.width < 560 ? [label, value] : `${label}:  ${value}`;
				},
			},
		});
	}
}

/* The chart panel: a metric against length, log axes, several jobs overlaid, error bars, a legend that
 * names model, scheme and protocol, the values as a table, CSV and SVG. Chart.js draws; error bars and
 * context lines are plugins of ours.
 *
 * A job's colour is a slot (0..7) that it keeps while the page is open; slots differ in marker and dash
 * too. */

import { logRange, xTicks, yTicks } from '/axes.js';
import { curvePath } from '/api.js';
import { h, reconcile, setAttr, setHidden, setText } from '/dom.js';
import { CURVE_METRICS, METRICS, count, measureText } from '/format.js';
import { cautions, csvOf, labelSeries } from '/series.js';

const N_SLOTS = 8;
const MARKERS = ['circle', 'rect', 'triangle', 'rectRot'];
const SHAPES = {
	circle: 'M12 8a4 4 0 1 0 8 0a4 4 0 1 0-8 0z',
	rect: 'M12.5 4.5h7v7h-7z',
	triangle: 'M16 3.5l5 8.5h-10z',
	rectRot: 'M16 3l5 5l-5 5l-5-5z',
};

/* -- slots ------------------------------------------------------------------------------------------ */

const slots = new Map();

/* Gives every listed job its slot: the one it had, else the first that no other listed job has. */
export function assignSlots(ids) {
	const taken = new Set(ids.filter((id) => slots.has(id)).map((id) => slots.get(id)));
	for (const id of ids) {
		if (slots.has(id))
			continue;
		const free = [...Array(N_SLOTS).keys()].find((s) => !taken.has(s)) ?? id % N_SLOTS;
		slots.set(id, free);
		taken.add(free);
	}
}

/* Frees colours of jobs that are not drawn when a drawn one would have to share. */
function settle(ids) {
	const used = new Map();
	for (const id of ids) {
		const slot = slots.get(id);
		if (slot !== undefined && used.has(slot))
			slots.delete(id);
		else if (slot !== undefined)
			used.set(slot, id);
	}
	assignSlots(ids);
}

export const slotOf = (id) => slots.get(id) ?? id % N_SLOTS;

/* A line with its marker, as in the chart. */
function swatch(id) {
	const slot = slotOf(id);
	const make = (tag, attrs) => {
		const node = document.createElementNS('http://www.w3.org/2000/svg', tag);
		for (const [k, v] of Object.entries(attrs))
			node.setAttribute(k, v);
		return node;
	};
	const svg = make('svg', { viewBox: '0 0 32 16', class: `swatch slot-${slot}`, 'aria-hidden': 'true' });
	svg.append(make('path', { d: 'M1 8h30', class: slot >= 4 ? 'line dashed' : 'line' }));
	svg.append(make('path', { d: SHAPES[MARKERS[slot % 4]], class: slot >= 4 ? 'mark hollow' : 'mark' }));
	return svg;
}

/* -- plugins ---------------------------------------------------------------------------------------- */

/* Value ± stderr as a bar with caps, under the markers. */
const errorBars = {
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

/* -- the panel -------------------------------------------------------------------------------------- */

const theme = () => {
	const style = getComputedStyle(document.documentElement);
	const get = (name) => style.getPropertyValue(name).trim();
	return { get, text: get('--text'), quiet: get('--quiet'), line: get('--line'), panel: get('--panel') };
};

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

export class Curve {
	/* root: an element to fill. id: its heading's, and the stem of its other ids. onRemove(id): null:
	 * no remove buttons. onMetric(metric): another one was chosen. */
	constructor(root, { id, onRemove = null, onMetric = null }) {
		this.all = [];
		this.metric = 'ppl_token';
		this.onRemove = onRemove;
		this.onMetric = onMetric;
		this.build(root, id);
		this.leave = new AbortController();
		const { signal } = this.leave;
		matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.draw(), { signal });
	}

	/* Before the root is dropped. */
	destroy() {
		this.leave.abort();
		this.chart?.destroy();
	}

	build(root, id) {
		this.select = h('select', { id: `${id}-metric`, onchange: () => this.pick(this.select.value) },
			CURVE_METRICS.map((m) => h('option', { value: m }, METRICS[m].label)));
		this.canvas = h('canvas', { id: `${id}-canvas`, role: 'img' });
		this.frame = h('div', { class: 'frame' }, this.canvas);
		this.empty = h('div', { class: 'empty chart-empty' });
		this.notes = h('ul', { class: 'notes', 'aria-live': 'polite' });
		this.legend = h('ul', { class: 'legend', 'aria-label': 'Curves' });
		this.table = h('table', { class: 'numbers' });
		this.csv = h('button', { class: 'button small', type: 'button', onclick: () => this.saveCsv() }, 'CSV');
		this.svg = h('a', { class: 'button small', download: '' }, 'SVG');
		const scroll = { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': 'Values of the curves' };
		this.values = h('details', { class: 'values' }, h('summary', {}, 'Values'), h('div', scroll, this.table));
		this.tools = h('div', { class: 'tools' },
			h('label', { for: `${id}-metric`, class: 'unseen' }, 'Metric'), this.select, this.csv, this.svg);
		this.title = h('h2', { id });
		root.replaceChildren(h('header', { class: 'panel-head' }, this.title, this.tools),
			this.notes, this.frame, this.empty, this.legend, this.values);
	}

	/* Draws these series (of seriesOf); `empty`: the node to show when there are none. */
	show(all, empty = null) {
		this.all = labelSeries(all);
		settle(all.map((s) => s.id));
		if (empty)
			this.empty.replaceChildren(empty);
		for (const option of this.select.options)
			option.disabled = all.length > 0 && !all.some((s) => s.has(option.value));
		this.draw();
	}

	pick(metric) {
		this.metric = metric;
		this.select.value = metric;
		this.draw();
		this.onMetric?.(metric);
	}

	draw() {
		const any = this.all.some((s) => s.points(this.metric).length > 0);
		setHidden(this.frame, !any);
		setHidden(this.values, !any);
		setHidden(this.empty, any);
		setHidden(this.tools, !any && this.all.length === 0);
		setText(this.title, METRICS[this.metric].title);
		this.drawNotes();
		this.drawLegend();
		this.drawLinks();
		if (!any)
			return;
		this.drawTable();
		this.drawChart();
	}

	/* What the x axis is. */
	place() {
		return METRICS[this.metric].byPosition ? 'Position' : 'Length';
	}

	drawNotes() {
		const notes = this.all.length > 1 ? cautions(this.all, this.metric) : [];
		reconcile(this.notes, notes, (n) => n, (n) => h('li', {}, n));
		setHidden(this.notes, notes.length === 0);
	}

	drawLegend() {
		const key = (s) => `${s.id} ${slotOf(s.id)} ${s.label}`;
		reconcile(this.legend, this.all, key, (s) =>
			h('li', {}, swatch(s.id), h('a', { href: `#/jobs/${s.id}` }, s.label),
				h('span', { class: 'quiet' }, [s.dataset, s.name].filter(Boolean).join(' · ')),
				this.onRemove && h('button', {
					class: 'remove', type: 'button', title: 'Remove from the chart',
					'aria-label': `Remove ${s.label} from the chart`, onclick: () => this.onRemove(s.id),
				}, '×')));
		setHidden(this.legend, this.all.length === 0);
	}

	/* The server draws the SVG. */
	drawLinks() {
		setHidden(this.svg, this.all.length === 0 || METRICS[this.metric].byPosition === true);
		setAttr(this.svg, 'href', curvePath(this.all.map((s) => s.id), this.metric));
		setAttr(this.svg, 'download', `${this.metric}.svg`);
	}

	drawTable() {
		const head = h('tr', {}, h('th', { scope: 'col' }, this.place()),
			this.all.map((s) => h('th', { scope: 'col' }, swatch(s.id), s.label)));
		const rows = [...placesOf(this.all, this.metric)].map(([x, words]) =>
			h('tr', {}, h('th', { scope: 'row' }, words), this.all.map((s) => {
				const p = s.points(this.metric).find((q) => q.x === x);
				return h('td', {}, p ? measureText(p.y, p.se) : '–');
			})));
		setAttr(this.table, 'aria-label', METRICS[this.metric].label);
		this.table.replaceChildren(h('thead', {}, head), h('tbody', {}, rows));
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

	drawChart() {
		const colours = theme();
		const points = this.all.flatMap((s) => s.points(this.metric));
		const places = placesOf(this.all, this.metric);
		const [xMin, xMax] = logRange([...places.keys()], [...places.keys()], 0.04);
		const [yMin, yMax] = logRange(points.map((p) => Math.max(p.y - (p.se ?? 0), p.y / 2)),
			points.map((p) => p.y + (p.se ?? 0)), 0.08);
		const contexts = [...new Set(this.all.map((s) => s.context).filter((c) => c > 0))];
		const xs = tickPlaces(places, this.metric);
		const options = this.options(colours, { xs, xMin, xMax, yMin, yMax, contexts });
		const data = { datasets: this.datasets(colours) };
		setAttr(this.canvas, 'aria-label', `${METRICS[this.metric].label} against length in tokens: ` +
			`${this.all.map((s) => s.label).join('; ')}. The numbers stand in the table under Values.`);
		if (!this.chart) {
			const plugins = [contextLines, errorBars];
			this.chart = new Chart(this.canvas, { type: 'line', data, options, plugins });
			return;
		}
		this.chart.data = data;
		this.chart.options = options;
		this.chart.update('none');
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
				tooltip: this.tooltip(colours),
			},
		};
	}

	tooltip(colours) {
		return {
			backgroundColor: colours.get('--tip'), borderColor: colours.line, borderWidth: 1,
			titleColor: colours.get('--tip-text'), bodyColor: colours.get('--tip-text'),
			padding: 10, cornerRadius: 6, usePointStyle: true, boxPadding: 4,
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
		};
	}

	saveCsv() {
		const blob = new Blob([csvOf(this.all, this.metric)], { type: 'text/csv' });
		const url = URL.createObjectURL(blob);
		h('a', { href: url, download: `${this.metric}.csv` }).click();
		setTimeout(() => URL.revokeObjectURL(url), 10000);
	}
}

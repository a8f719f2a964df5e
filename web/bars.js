/* Metrics without lengths as horizontal bars with whiskers of a standard error: the parts of a task
 * (paradigms, kinds), best first and their mean last; or its accuracies; one bar a job in each row.
 * Whiskers, the values at the bars' ends and the lines of means are plugins of ours. */

import { Figure } from '/figure.js';
import { count, metricLabel, metricText } from '/format.js';
import { barChoices, barCsv, barRows } from '/series.js';
import { slotOf, swatch } from '/slots.js';

const MAX_LABEL = 44; /* characters */

/* Value ± stderr on each bar, and the value in digits behind it where bars are thick enough. */
const whiskers = {
	id: 'whiskers',
	afterDatasetsDraw(chart, _, options) {
		const { ctx, chartArea, scales } = chart;
		ctx.save();
		ctx.lineWidth = 1.5;
		ctx.strokeStyle = options.ink;
		ctx.font = `11px ${chart.options.font.family}`;
		ctx.textBaseline = 'middle';
		chart.data.datasets.forEach((dataset, i) => chart.getDatasetMeta(i).data.forEach((bar, k) => {
			const m = dataset.cells[k];
			if (typeof m?.value !== 'number')
				return;
			const half = Math.min(4, bar.height / 3);
			const se = m.stderr > 0 ? m.stderr : 0;
			const [low, high] = [m.value - se, m.value + se].map((v) =>
				Math.min(Math.max(scales.x.getPixelForValue(v), chartArea.left), chartArea.right));
			if (se) {
				ctx.beginPath();
				ctx.moveTo(low, bar.y);
				ctx.lineTo(high, bar.y);
				for (const x of [low, high]) {
					ctx.moveTo(x, bar.y - half);
					ctx.lineTo(x, bar.y + half);
				}
				ctx.stroke();
			}
			if (bar.height < 11)
				return;
			ctx.fillStyle = options.quiet;
			ctx.textAlign = m.value < 0 ? 'right' : 'left';
			ctx.fillText(metricText(m).split(' ')[0], m.value < 0 ? low - 6 : high + 6, bar.y);
		}));
		ctx.restore();
	},
};

/* A dashed line at the mean over parts, one a job, under the bars. */
const meanLines = {
	id: 'meanLines',
	beforeDatasetsDraw(chart, _, options) {
		const { ctx, chartArea, scales } = chart;
		ctx.save();
		ctx.setLineDash([3, 4]);
		chart.data.datasets.forEach((dataset) => {
			const mean = dataset.cells[options.row]?.value;
			if (typeof mean !== 'number')
				return;
			const x = Math.round(scales.x.getPixelForValue(mean)) + 0.5;
			ctx.strokeStyle = dataset.borderColor;
			ctx.beginPath();
			ctx.moveTo(x, chartArea.top);
			ctx.lineTo(x, chartArea.bottom);
			ctx.stroke();
		});
		ctx.restore();
	},
};

/* Without its middle: names of parts differ at their ends. */
function shorten(text, max) {
	const head = Math.ceil((max - 1) / 2);
	return text.length > max ? `${text.slice(0, head)}…${text.slice(text.length - (max - 1 - head))}` : text;
}

export class Bars extends Figure {
	choices() {
		return barChoices(this.all);
	}

	has(series, metric) {
		return barRows([series], metric).length > 0;
	}

	rows() {
		return barRows(this.all, this.metric);
	}

	drawable() {
		return this.rows().some((row) => row.cells.some((m) => typeof m?.value === 'number'));
	}

	title() {
		const [first] = this.all;
		const label = this.choices().find(([m]) => m === this.metric)?.[1] ?? '';
		return first && !this.onRemove ? label : [label, first?.taskName].filter(Boolean).join(', ');
	}

	swatch(s) {
		return swatch(s.id, true);
	}

	csv() {
		return barCsv(this.all, this.metric);
	}

	table() {
		const part = this.rows().some((row) => row.group);
		return [part ? 'Group' : 'Metric', this.rows().map((row) =>
			[row.label, ...row.cells.map(metricText)])];
	}

	thickness() {
		return this.rows().length > 24 ? 13 : this.all.length > 1 ? 15 : 20;
	}

	height() {
		const row = this.all.length * this.thickness() + (this.rows().length > 24 ? 6 : 14);
		return this.rows().length * row + 58;
	}

	chart(colours) {
		const rows = this.rows();
		const datasets = this.all.map((s, i) => {
			const slot = slotOf(s.id);
			const colour = colours.get(`--series-${slot}`);
			return {
				label: s.label, cells: rows.map((row) => row.cells[i]), data: rows.map((row) => row.cells[i]?.value ?? null),
				backgroundColor: slot >= 4 ? `${colour}44` : `${colour}b8`, borderColor: colour, borderWidth: 1,
				borderSkipped: false, barThickness: this.thickness() - 1, pointStyle: 'rect',
			};
		});
		return { type: 'bar', data: { labels: rows.map((row) => row.label), datasets }, plugins: [meanLines, whiskers],
			options: this.options(colours, rows) };
	}

	/* Room right of the axis, for the number behind a bar that reaches its end. */
	room(rows) {
		const texts = rows.flatMap((row) => row.cells).map((m) => metricText(m).split(' ')[0]);
		return 12 + 7 * Math.max(0, ...texts.map((text) => text.length));
	}

	/* The ends of the axis: zero, the longest whiskers, and of negative values room for their numbers. */
	range(rows) {
		const there = rows.flatMap((row) => row.cells).filter((m) => typeof m?.value === 'number');
		const low = Math.min(0, ...there.map((m) => m.value - (m.stderr ?? 0))) * 1.14;
		const high = Math.max(0, ...there.map((m) => m.value + (m.stderr ?? 0)));
		const all = there.every((m) => m.unit === 'fraction') && high > 0.5; /* a scale that all tasks share */
		return [Math.min(low, 0), all ? Math.max(1, high) : high || (low ? 0 : 1)];
	}

	options(colours, rows) {
		const family = getComputedStyle(document.body).fontFamily;
		const fraction = rows.some((row) => row.cells.some((m) => m?.unit === 'fraction'));
		const [min, max] = this.range(rows);
		const grid = { color: colours.line, borderColor: colours.line, tickLength: 4 };
		const font = { family, size: 12 };
		return {
			indexAxis: 'y', animation: false, responsive: true, maintainAspectRatio: false, font: { family },
			interaction: { mode: 'index', axis: 'y', intersect: false },
			layout: { padding: { top: 2, right: this.room(rows) } },
			scales: {
				x: {
					min, max, grid,
					title: { display: rows.some((row) => row.group), text: metricLabel(this.metric), color: colours.quiet, font },
					ticks: { color: colours.quiet, maxRotation: 0, includeBounds: false, callback: (v) =>
						(fraction && v > 1 ? '' : Number(v.toPrecision(6)).toLocaleString('en-US')) },
				},
				y: {
					grid: { ...grid, display: false },
					ticks: { color: (tick) => (rows[tick.index]?.mean ? colours.text : colours.quiet), autoSkip: false,
						font: (tick) => ({ family, size: 12, weight: rows[tick.index]?.mean ? '600' : '400' }),
						callback(_, i) {
							return shorten(rows[i].label, Math.min(MAX_LABEL, Math.floor(this.chart.width / 18)));
						} },
				},
			},
			plugins: {
				legend: { display: false },
				whiskers: { ink: colours.text, quiet: colours.quiet },
				meanLines: { row: rows.findIndex((row) => row.mean) },
				tooltip: this.tips(colours, rows),
			},
		};
	}

	tips(colours, rows) {
		return this.tooltip(colours, {
			callbacks: {
				title: (items) => (items.length ? rows[items[0].dataIndex].label : ''),
				label: (item) => {
					const m = item.dataset.cells[item.dataIndex];
					const value = metricText(m) + (m?.n ? `   n ${count(m.n)}` : '');
					const { label } = item.dataset;
					return item.chart.width < 560 ? [label, value] : `${label}:  ${value}`;
				},
			},
		});
	}
}

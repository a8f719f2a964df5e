/* A rule's metric over the runs of a branch, in the order of time: error bars, the level between changes, and at each
 * change point the commit that brought it. A Figure of one series, whose choice of metric is one of rules, and of task,
 * one of branches. */

import { linearTicks } from '/axes.js';
import { errorBars } from '/curve.js';
import { h, reconcile, setHidden } from '/dom.js';
import { Figure } from '/figure.js';
import { count, dateTime, measureText, metricLabel, shortCommit, timeOf } from '/format.js';
import { csvLines } from '/series.js';

const isNumber = (v) => typeof v === 'number';

/* A level's line from change to change, and a dashed line at each change with its commit. */
const changeMarks = {
	id: 'changeMarks',
	beforeDatasetsDraw(chart, _, options) {
		const { ctx, chartArea, scales } = chart;
		ctx.save();
		ctx.lineWidth = 1.5;
		ctx.strokeStyle = options.level;
		for (const { from, to, value } of options.levels) {
			const y = Math.round(scales.y.getPixelForValue(value)) + 0.5;
			ctx.beginPath();
			ctx.moveTo(Math.max(scales.x.getPixelForValue(from - 0.5), chartArea.left), y);
			ctx.lineTo(Math.min(scales.x.getPixelForValue(to + 0.5), chartArea.right), y);
			ctx.stroke();
		}
		ctx.setLineDash([3, 4]);
		ctx.strokeStyle = ctx.fillStyle = options.mark;
		ctx.font = `11px ${chart.options.font.family}`;
		options.changes.forEach(({ index, label }, row) => {
			const x = Math.round(scales.x.getPixelForValue(index - 0.5)) + 0.5;
			ctx.beginPath();
			ctx.moveTo(x, chartArea.top);
			ctx.lineTo(x, chartArea.bottom);
			ctx.stroke();
			const right = x + 5 + ctx.measureText(label).width < chartArea.right;
			ctx.textAlign = right ? 'left' : 'right';
			ctx.fillText(label, right ? x + 5 : x - 5, chartArea.top + 11 + 14 * (row % 3));
		});
		ctx.restore();
	},
};

export class History extends Figure {
	/* gate: its name. onMetric(): another rule was chosen. onTask(branch): another branch. */
	constructor(root, { gate, ...options }) {
		super(root, options);
		this.gate = gate;
		this.taskLabel.textContent = 'Branch';
		this.task.setAttribute('aria-label', 'Branch');
		this.rules = [];
		this.points = [];
		this.changes = [];
	}

	/* rules: [rule] of the gate that have a value. Draws `points` and `changes` of the chosen one (of the API). */
	showHistory(rules, points, changes, empty) {
		this.rules = rules;
		this.points = points.map((p, x) => ({ ...p, x, y: p.value, se: p.stderr ?? null }));
		this.changes = changes;
		this.all = rules.length ? [{ id: 0, label: this.title() }] : [];
		this.empty.replaceChildren(empty);
		this.draw();
		setHidden(this.csvButton, points.length === 0);
	}

	/* Another rule has other points: nothing is drawn before they are here. */
	pick(rule) {
		this.wish = rule;
		this.onMetric();
	}

	choices() {
		return this.rules.map((r) => [r.name, r.name]);
	}

	has(_, name) {
		return this.rules.some((r) => r.name === name);
	}

	get metric() {
		return this.rules.some((r) => r.name === this.wish) ? this.wish : (this.rules[0]?.name ?? '');
	}

	rule() {
		return this.rules.find((r) => r.name === this.metric);
	}

	href(run) {
		return `#/gates/${encodeURIComponent(this.gate)}/runs/${run}`;
	}

	drawable() {
		return this.points.some((p) => isNumber(p.y));
	}

	/* What the y axis is. */
	label() {
		const rule = this.rule();
		return rule?.type === 'throughput' ? 'Tokens a second' : metricLabel(rule?.metric ?? '');
	}

	title() {
		const rule = this.rule();
		if (!rule)
			return 'History';
		const at = rule.length ? ` at ${count(rule.length)}` : '';
		const over = rule.over ? ` over that at ${count(rule.over)}` : '';
		return `${this.label()}${at}${over}, run after run`;
	}

	/* The changes, in words. */
	drawLegend() {
		const at = (c) => this.points[c.index];
		reconcile(this.legend, this.changes, (c) => JSON.stringify(c), (c) => h('li', {},
			h('a', { href: this.href(at(c)?.run) },
				shortCommit(at(c)?.commit) || `run ${at(c)?.run}`),
			h('span', { class: 'quiet' }, `${measureText(c.before, null)} → ${measureText(c.after, null)}`)));
		setHidden(this.legend, this.changes.length === 0);
		this.legend.setAttribute('aria-label', 'Change points');
	}

	drawTable() {
		const head = ['Run', 'Time', 'Commit', 'Branch', 'Model', 'Value'];
		const run = (p) => h('a', { href: this.href(p.run) }, String(p.run));
		const cells = (p) => [p.time && dateTime(timeOf(p.time)), shortCommit(p.commit), p.branch, p.model,
			measureText(p.value, p.stderr)];
		this.numbers.replaceChildren(
			h('thead', {}, h('tr', {}, head.map((t) => h('th', { scope: 'col' }, t)))),
			h('tbody', {}, [...this.points].reverse().map((p) =>
				h('tr', {}, h('th', { scope: 'row' }, run(p)), cells(p).map((c) => h('td', {}, c ?? '–'))))));
	}

	csv() {
		const rows = this.points.map((p) =>
			[p.run, p.job, p.time, p.commit, p.branch, p.model, this.rule()?.metric, p.value, p.stderr]);
		return csvLines([['run', 'job', 'time', 'commit', 'branch', 'model', 'metric', 'value', 'stderr'], ...rows]);
	}

	levels() {
		const ends = [...this.changes.map((c) => c.index), this.points.length];
		const values = [this.changes[0]?.before, ...this.changes.map((c) => c.after)];
		return this.changes.length === 0 ? [] : ends.map((end, i) =>
			({ from: i === 0 ? 0 : ends[i - 1], to: end - 1, value: values[i] }));
	}

	range() {
		const there = this.points.filter((p) => isNumber(p.y));
		const low = Math.min(...there.map((p) => p.y - (p.se ?? 0)));
		const high = Math.max(...there.map((p) => p.y + (p.se ?? 0)));
		const room = (high - low) * 0.12 || Math.abs(high) * 0.05 || 1;
		return [low - room, high + room];
	}

	/* Places on the x axis whose commits fit side by side. */
	ticks(width) {
		const every = Math.max(1, Math.ceil((this.points.length * 74) / Math.max(width - 80, 74)));
		return this.points.map((_, i) => i).filter((i) => i % every === 0);
	}

	chart(colours) {
		const colour = colours.get('--series-0');
		const radius = this.points.length > 60 ? 2.5 : 4;
		return {
			type: 'line', plugins: [changeMarks, errorBars], options: this.options(colours),
			data: { datasets: [{
				label: this.title(), data: this.points, borderColor: colour, backgroundColor: colour, borderWidth: 1.5,
				pointRadius: radius, pointHoverRadius: radius + 2, tension: 0, spanGaps: true, clip: 8,
			}] },
		};
	}

	options(colours) {
		const family = getComputedStyle(document.body).fontFamily;
		const [min, max] = this.range();
		const last = this.points.length - 1;
		const ticks = { color: colours.quiet, maxRotation: 0, minRotation: 0, autoSkipPadding: 14 };
		const grid = { color: colours.line, borderColor: colours.line, tickLength: 4 };
		const name = (p) => p && (shortCommit(p.commit) || `#${p.run}`);
		const changes = this.changes.map((c) => ({ index: c.index, label: name(this.points[c.index]) ?? '' }));
		return {
			animation: false, responsive: true, maintainAspectRatio: false, font: { family },
			interaction: { mode: 'nearest', axis: 'x', intersect: false }, layout: { padding: { top: 4, right: 6 } },
			scales: {
				x: {
					type: 'linear', min: -0.5, max: last + 0.5, grid: { ...grid, display: false },
					ticks: { ...ticks, callback: (v) => name(this.points[v]) },
					afterBuildTicks: (axis) => {
						axis.ticks = this.ticks(axis.chart.width).map((value) => ({ value }));
					},
				},
				y: {
					type: 'linear', min, max, grid, title: { display: true, text: this.rule()?.over ? 'Ratio' : this.label(),
						color: colours.quiet, font: { family, size: 12 } },
					ticks: { ...ticks, autoSkip: false, callback: (v) => v.toLocaleString('en-US', { maximumFractionDigits: 6 }) },
					afterBuildTicks: (axis) => {
						axis.ticks = linearTicks(min, max).map((value) => ({ value }));
					},
				},
			},
			plugins: {
				legend: { display: false }, tooltip: this.tips(colours),
				changeMarks: { levels: this.levels(), changes, level: colours.get('--edge'), mark: colours.get('--warn') },
			},
		};
	}

	tips(colours) {
		return this.tooltip(colours, {
			callbacks: {
				title: (items) => (items.length ? [items[0].raw.commit, items[0].raw.branch].filter(Boolean).join(' on ') ||
					`run ${items[0].raw.run}` : ''),
				label: ({ raw }) => [measureText(raw.y, raw.se), raw.model, raw.time && dateTime(timeOf(raw.time))]
					.filter(Boolean),
			},
		});
	}
}

/* A panel that shows what a metric came to in one job or several: title, choice of metric, cautions, a
 * chart (Chart.js), a legend, the values as a table, CSV. What kind of chart is the subclass's: Curve,
 * Bars, History.
 *
 * A subclass has: choices() -> [[metric, label]], has(series, metric), title(), drawable() -> whether
 * there is something to draw, chart(colours) -> Chart.js's { type, data, options, plugins }, table() ->
 * [head, rows] of text, csv(); and may have swatch(s), svgPath(), height(), describe(). */

import { h, reconcile, setAttr, setHidden, setText } from '/dom.js';
import { cautions, labelSeries } from '/series.js';
import { settleSlots, slotOf, swatch, theme } from '/slots.js';

export class Figure {
	/* root: an element to fill. id: its heading's, and the stem of its other ids. wish: the metric to
	 * show, where there is such a one. onRemove(id): null: no remove buttons. onMetric(): another one was
	 * chosen. onTask(name): another task was chosen. */
	constructor(root, { id, wish = null, onRemove = null, onMetric = null, onTask = null }) {
		this.all = [];
		this.wish = wish;
		this.onRemove = onRemove;
		this.onMetric = onMetric;
		this.onTask = onTask;
		this.build(root, id);
		this.leave = new AbortController();
		const { signal } = this.leave;
		matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.draw(), { signal });
	}

	/* Before the root is dropped or filled by another. */
	destroy() {
		this.leave.abort();
		this.drawn?.destroy();
	}

	build(root, id) {
		this.select = h('select', { id: `${id}-metric`, onchange: () => this.pick(this.select.value) });
		this.task = h('select', { id: `${id}-task`, onchange: () => this.onTask?.(this.task.value) });
		this.canvas = h('canvas', { id: `${id}-canvas`, role: 'img' });
		this.frame = h('div', { class: 'frame' }, this.canvas);
		this.holder = h('div', { class: 'frame-holder' }, this.frame);
		this.empty = h('div', { class: 'empty chart-empty' });
		this.notes = h('ul', { class: 'notes', 'aria-live': 'polite' });
		this.legend = h('ul', { class: 'legend', 'aria-label': 'Drawn jobs' });
		this.numbers = h('table', { class: 'numbers' });
		this.csvButton = h('button', { class: 'button small', type: 'button', onclick: () => this.saveCsv() }, 'CSV');
		this.svg = h('a', { class: 'button small', download: '' }, 'SVG');
		const scroll = { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': 'Values of the chart' };
		this.values = h('details', { class: 'values' }, h('summary', {}, 'Values'), h('div', scroll, this.numbers));
		this.taskLabel = h('label', { for: `${id}-task`, class: 'unseen' }, 'Task');
		this.tools = h('div', { class: 'tools' }, this.taskLabel, this.task,
			h('label', { for: `${id}-metric`, class: 'unseen' }, 'Metric'), this.select, this.csvButton, this.svg);
		this.heading = h('h2', { id });
		root.replaceChildren(h('header', { class: 'panel-head' }, this.heading, this.tools),
			this.notes, this.holder, this.empty, this.legend, this.values);
		this.setTasks([], '');
	}

	/* The tasks that could be shown here, and the one that is. */
	setTasks(names, current) {
		setHidden(this.task, names.length < 2);
		setHidden(this.taskLabel, names.length < 2);
		if (this.task.dataset.names !== names.join('\n')) {
			this.task.dataset.names = names.join('\n');
			this.task.replaceChildren(...names.map((n) => h('option', { value: n }, n)));
		}
		this.task.value = current;
	}

	/* Draws these series (of seriesOf); `empty`: the node to show when there are none. */
	show(all, empty = null) {
		this.all = labelSeries(all);
		settleSlots(all.map((s) => s.id));
		if (empty)
			this.empty.replaceChildren(empty);
		this.draw();
	}

	/* The wished metric where somebody has it, else the first that somebody has. */
	get metric() {
		const there = this.choices().map(([m]) => m).filter((m) => this.all.some((s) => this.has(s, m)));
		return there.includes(this.wish) ? this.wish : (there[0] ?? this.choices()[0]?.[0] ?? '');
	}

	pick(metric) {
		this.wish = metric;
		this.draw();
		this.onMetric?.();
	}

	draw() {
		const any = this.drawable();
		setHidden(this.holder, !any);
		setHidden(this.values, !any);
		setHidden(this.empty, any);
		setHidden(this.tools, !any && this.all.length === 0 && this.task.hidden);
		setText(this.heading, this.all.length ? this.title() : 'Results');
		this.drawChoices();
		this.drawNotes();
		this.drawLegend();
		this.drawLinks();
		if (!any)
			return;
		this.drawTable();
		this.drawChart();
	}

	drawChoices() {
		const choices = this.choices();
		const key = JSON.stringify(choices);
		if (this.select.dataset.choices !== key) {
			this.select.dataset.choices = key;
			this.select.replaceChildren(...choices.map(([value, label]) => h('option', { value }, label)));
		}
		for (const option of this.select.options)
			option.disabled = this.all.length > 0 && !this.all.some((s) => this.has(s, option.value));
		this.select.value = this.metric;
		setHidden(this.select, this.all.length === 0 || choices.length < 2);
		setHidden(this.csvButton, this.all.length === 0);
	}

	drawNotes() {
		const notes = this.all.length > 1 ? cautions(this.all, this.metric) : [];
		reconcile(this.notes, notes, (n) => n, (n) => h('li', {}, n));
		setHidden(this.notes, notes.length === 0);
	}

	drawLegend() {
		const key = (s) => `${s.id} ${slotOf(s.id)} ${s.label}`;
		reconcile(this.legend, this.all, key, (s) =>
			h('li', {}, this.swatch(s), h('a', { href: `#/jobs/${s.id}` }, s.label),
				h('span', { class: 'quiet' }, [s.dataset, s.name].filter(Boolean).join(' · ')),
				this.onRemove && h('button', {
					class: 'remove', type: 'button', title: 'Remove from the chart',
					'aria-label': `Remove ${s.label} from the chart`, onclick: () => this.onRemove(s.id),
				}, '×')));
		setHidden(this.legend, this.all.length === 0);
	}

	/* The server draws the SVG. */
	drawLinks() {
		const path = this.all.length ? this.svgPath() : null;
		setHidden(this.svg, !path);
		setAttr(this.svg, 'href', path);
		setAttr(this.svg, 'download', `${this.metric}.svg`);
	}

	drawTable() {
		const [head, rows] = this.table();
		setAttr(this.numbers, 'aria-label', this.title());
		this.numbers.replaceChildren(
			h('thead', {}, h('tr', {}, h('th', { scope: 'col' }, head),
				this.all.map((s) => h('th', { scope: 'col' }, this.swatch(s), s.label)))),
			h('tbody', {}, rows.map(([first, ...cells]) =>
				h('tr', {}, h('th', { scope: 'row' }, first), cells.map((c) => h('td', {}, c))))));
	}

	drawChart() {
		const height = this.height();
		this.frame.style.height = height ? `${height}px` : '';
		setAttr(this.holder, 'tabindex', this.holder.scrollHeight > this.holder.clientHeight ? 0 : null);
		setAttr(this.canvas, 'aria-label', `${this.describe()}: ${this.all.map((s) => s.label).join('; ')}. ` +
			'The numbers stand in the table under Values.');
		const config = this.chart(theme());
		if (!this.drawn) {
			this.drawn = new Chart(this.canvas, config);
			return;
		}
		this.drawn.data = config.data;
		this.drawn.options = config.options;
		this.drawn.update('none');
	}

	swatch(s) {
		return swatch(s.id);
	}

	/* The path of the same chart as SVG, or null. */
	svgPath() {
		return null;
	}

	/* Pixels; null: the style sheet's. */
	height() {
		return null;
	}

	describe() {
		return this.title();
	}

	/* What every chart's tooltip looks like. */
	tooltip(colours, more) {
		return {
			backgroundColor: colours.get('--tip'), borderColor: colours.line, borderWidth: 1,
			titleColor: colours.get('--tip-text'), bodyColor: colours.get('--tip-text'),
			padding: 10, cornerRadius: 6, usePointStyle: true, boxPadding: 4, ...more,
		};
	}

	saveCsv() {
		const blob = new Blob([this.csv()], { type: 'text/csv' });
		const url = URL.createObjectURL(blob);
		h('a', { href: url, download: `${this.metric}.csv` }).click();
		setTimeout(() => URL.revokeObjectURL(url), 10000);
	}
}

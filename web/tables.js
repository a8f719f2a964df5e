/* A result's metrics as tables: by length, by part of the task, the rest, by layer, by position. */

import { h } from '/dom.js';
import { METRICS, count, measureText, metricText, span } from '/format.js';

export function table(caption, head, rows, last = 0) {
	const row = (cells, i) => h('tr', { class: rows.length - i <= last ? 'total' : null }, cells.map((cell, k) =>
		(k === 0 ? h('th', { scope: 'row' }, cell) : h('td', {}, cell))));
	return h('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': caption },
		h('table', { class: 'numbers', 'aria-label': caption },
			h('thead', {}, h('tr', {}, head.map((t) => h('th', { scope: 'col' }, t)))),
			h('tbody', {}, rows.map(row))));
}

function valueText(m) {
	if (m && typeof m.value !== 'number')
		return `– (${(m.reason ?? 'not measured').replaceAll('_', ' ')})`;
	return metricText(m);
}

const countText = (n) => (n === undefined || n === null ? '–' : count(n));
const distinct = (list) => [...new Set(list)];
const isPart = (m) => m.group && m.unit !== 'items';

/* Lengths down, metrics across. */
function lengthTable(metrics) {
	const byLength = metrics.filter((m) => m.length > 0 && m.from === undefined && m.unit !== 'items');
	if (!byLength.length)
		return null;
	const names = distinct(byLength.map((m) => m.name));
	const lengths = distinct(byLength.map((m) => m.length)).sort((a, b) => a - b);
	const rows = lengths.map((length) => {
		const at = (name) => byLength.find((m) => m.name === name && m.length === length);
		const n = names.map((name) => at(name)?.n).find((x) => x !== undefined);
		return [count(length), ...names.map((name) => valueText(at(name))), countText(n)];
	});
	return table('Metrics by length', ['Length', ...names.map((n) => METRICS[n]?.short ?? n), 'n'], rows);
}

/* Parts down, metrics across, the mean over the parts last. */
function partTable(metrics) {
	const parts = metrics.filter(isPart);
	if (!parts.length)
		return null;
	const names = distinct(parts.map((m) => m.name));
	const groups = distinct(parts.map((m) => m.group));
	const row = (label, group) => {
		const cells = names.map((name) => metrics.find((m) => m.name === name && (m.group ?? null) === group));
		return [label, ...cells.map(valueText), countText(cells.find((m) => m?.n !== undefined)?.n)];
	};
	const mean = metrics.some((m) => names.includes(m.name) && !m.group);
	const rows = [...groups.map((g) => row(g, g)), ...(mean ? [row(`mean of ${groups.length}`, null)] : [])];
	return table('Metrics by group', ['Group', ...names, 'n'], rows, mean ? 1 : 0);
}

/* What is left. Counts of zero say nothing, and a map (layer by frequency) is no list. */
function plainTable(metrics) {
	const parted = distinct(metrics.filter(isPart).map((m) => m.name));
	const shown = (m) => (m.unit === 'items' ? m.value > 0 : !(m.length > 0) && !parted.includes(m.name));
	const plain = metrics.filter((m) => m.from === undefined && m.layer === undefined && shown(m));
	if (!plain.length)
		return null;
	const name = (m) => [m.name, m.group, m.length && `at ${m.length}`].filter(Boolean).join(' · ');
	const rows = plain.map((m) => [name(m), valueText(m), countText(m.n), m.unit ?? '']);
	return table('Metrics', ['Metric', 'Value', 'n', 'Unit'], rows);
}

/* Of a map of frequencies a line a layer: for queries and keys the mean, the highest, and where that is. */
function layerTable(metrics) {
	const cells = metrics.filter((m) => m.frequency !== undefined);
	if (!cells.length)
		return null;
	const rows = distinct(cells.map((m) => m.layer)).map((layer) => [String(layer), ...['q', 'k'].flatMap((part) => {
		const row = cells.filter((m) => m.layer === layer && m.part === part);
		const most = row.reduce((a, b) => (b.value > a.value ? b : a));
		const mean = row.reduce((sum, m) => sum + m.value, 0) / row.length;
		return [measureText(mean, null), measureText(most.value, null),
			`${most.frequency} (θ ${Number(most.theta.toPrecision(2))})`];
	})]);
	return table('Use of frequencies by layer',
		['Layer', 'Queries: mean', 'Highest', 'At', 'Keys: mean', 'Highest', 'At'], rows);
}

function positionTable(metrics) {
	const bins = metrics.filter((m) => m.from !== undefined);
	if (!bins.length)
		return null;
	return h('details', { class: 'values' }, h('summary', {}, 'Loss by position'),
		table('Loss by position', ['Position', 'nats/token', 'n'], bins.map((m) =>
			[span(m), valueText(m), countText(m.n)])));
}

export const metricTables = (metrics) =>
	[lengthTable(metrics), partTable(metrics), plainTable(metrics), layerTable(metrics), positionTable(metrics)].filter(Boolean);

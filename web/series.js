/* From a job with a result to what a chart draws, curves and bars, and what must be said when several are
 * drawn together. No DOM. */

import { METRICS, count, metricLabel, perToken, protocol, scheme, span } from '/format.js';

/* Where a metric stands on the x axis: at its length, or in the middle (of the logarithm) of its bin of
 * positions. */
const placeOf = (m) => (m.from > 0 ? Math.sqrt(m.from * (m.to - 1)) : m.length);

/* Points of a metric: [{x, y: value, se: stderr or null, n, label: x in words}], ascending, only those
 * that a log axis can show. */
function pointsOf(metrics, name) {
	return metrics
		.filter((m) => m.name === name && placeOf(m) > 0 && !m.group && m.value > 0)
		.map((m) => ({
			x: placeOf(m), y: m.value, se: m.stderr ?? null, n: m.n ?? null,
			label: m.from > 0 ? span(m) : count(m.length),
		}))
		.sort((a, b) => a.x - b.x);
}

/* What leaves documents out. `prefix` sets min_doc_tokens by itself: there it is the protocol's. */
export function subsetOf(params) {
	const names = ['max_docs', 'max_tokens_per_doc', 'limit', params.protocol !== 'prefix' && 'min_doc_tokens'];
	return names.map((name) => params[name] ?? '').join(' ');
}

/* `model`, `task`: their descriptions from the API's lists, or undefined when they are not there. */
export function seriesOf(job, model, task) {
	const result = job.result ?? {};
	const metrics = result.metrics ?? [];
	const params = result.task?.params ?? job.params ?? {};
	const overridden = Boolean(job.engine?.position);
	return {
		id: job.id,
		model: result.model?.name ?? job.model,
		scheme: scheme(result.model?.position ?? model?.position),
		protocol: protocol(params, task),
		taskName: job.task,
		task: `${result.task?.name ?? job.task} v${result.task?.version ?? '?'}`,
		subset: subsetOf(params),
		dataset: result.dataset?.name ?? job.dataset,
		name: job.name ?? '',
		datasetFingerprint: result.dataset?.fingerprint ?? job.dataset,
		tokenizer: result.model?.tokenizer_fingerprint ?? null,
		context: overridden ? null : (model?.n_ctx ?? null),
		metrics,
		headline: job.headline?.name ?? null,
		points: (metric) => pointsOf(metrics, metric),
		has: (metric) => metrics.some((m) => m.name === metric && placeOf(m) > 0),
	};
}

/* Adds `label` to each series: "model · scheme · protocol", and only as much more as tells equal ones
 * apart. */
export function labelSeries(all) {
	const label = (s) => [s.model, s.scheme, s.protocol].filter(Boolean).join(' · ');
	const times = new Map();
	for (const s of all)
		times.set(label(s), (times.get(label(s)) ?? 0) + 1);
	for (const s of all)
		s.label = times.get(label(s)) > 1 ? `${label(s)} · job ${s.id}` : label(s);
	return all;
}

/* -- bars ------------------------------------------------------------------------------------------- */

const ACCURACIES = 'accuracies'; /* stands for all fractions of a task without parts */

const distinctOf = (list) => [...new Set(list)];

/* [[metric, label]] that bars can show of these series: what has parts first; accuracies in one chart
 * where there are no parts; then each other metric by itself. The task's headline is the first. */
export function barChoices(all) {
	const metrics = all.flatMap((s) => s.metrics).filter((m) => m.unit !== 'items' && m.from === undefined);
	const parted = distinctOf(metrics.filter((m) => m.group).map((m) => m.name));
	const rest = distinctOf(metrics.map((m) => m.name)).filter((name) => !parted.includes(name));
	const fractions = rest.filter((name) => metrics.some((m) => m.name === name && m.unit === 'fraction'));
	const together = !parted.length && fractions.length > 1;
	const single = together ? rest.filter((name) => !fractions.includes(name)) : rest;
	const names = [...(together ? [ACCURACIES] : []), ...parted, ...single];
	const head = all[0]?.headline;
	names.sort((a, b) => (b === head) - (a === head));
	return names.map((name) => [name, metricLabel(name)]);
}

/* [{label, group, mean, cells: [a metric or null, one a series]}]: the parts by value, best first, and what
 * is over all of them last. */
export function barRows(all, choice) {
	const names = choice === ACCURACIES
		? distinctOf(all.flatMap((s) => s.metrics).filter((m) => m.unit === 'fraction').map((m) => m.name)) : [choice];
	const at = (name, group) =>
		all.map((s) => s.metrics.find((m) => m.name === name && (m.group ?? null) === group) ?? null);
	const size = ({ cells }) => {
		const values = cells.map((m) => m?.value).filter((v) => typeof v === 'number');
		return values.reduce((a, b) => a + b, 0) / values.length || 0;
	};
	return names.flatMap((name) => {
		const groups = distinctOf(all.flatMap((s) => s.metrics).filter((m) => m.name === name && m.group).map((m) => m.group));
		const rows = groups.map((group) => ({ label: group, group, mean: false, cells: at(name, group) }));
		rows.sort((a, b) => size(b) - size(a));
		const label = groups.length ? `mean of ${groups.length}` : name;
		return [...rows, { label, group: null, mean: groups.length > 0, cells: at(name, null) }];
	}).filter((row) => row.cells.some(Boolean));
}

/* -- what does not compare -------------------------------------------------------------------------- */

const differ = (all, what) => new Set(all.map(what).filter((v) => v !== null)).size > 1;
const distinct = (all, what) => [...new Set(all.map(what))].join('; ');

/* What makes these jobs' numbers incomparable, as sentences. */
export function cautions(all, metric) {
	const notes = [];
	if (differ(all, (s) => s.tokenizer) && perToken(metric))
		notes.push('Different tokenizers: numbers of different tokenizers do not compare. Bits per byte does.');
	if (differ(all, (s) => s.datasetFingerprint))
		notes.push(`${differ(all, (s) => s.dataset) ? 'Different datasets' : 'Different data of one name'} ` +
			`(${distinct(all, (s) => s.dataset)}): these numbers do not compare.`);
	else if (differ(all, (s) => s.subset))
		notes.push('Different subsets of the dataset: these numbers do not compare.');
	if (differ(all, (s) => s.protocol) || differ(all, (s) => s.task))
		notes.push(METRICS[metric]
			? `Different protocols (${distinct(all, (s) => s.protocol)}): tokens see different contexts.`
			: `Different settings (${distinct(all, (s) => s.protocol || 'the defaults')}): these numbers do not compare.`);
	return notes;
}

function csvField(value) {
	const text = value === null || value === undefined ? '' : String(value);
	return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

export const csvLines = (rows) => rows.map((row) => row.map(csvField).join(',') + '\r\n').join('');

/* The drawn curves as CSV: full precision, one row a point. */
export function curveCsv(all, metric) {
	const rows = [['job', 'model', 'scheme', 'protocol', 'dataset', 'metric', 'length', 'value', 'stderr', 'n']];
	for (const s of all)
		for (const p of s.points(metric))
			rows.push([s.id, s.model, s.scheme, s.protocol, s.dataset, metric, p.x, p.y, p.se, p.n]);
	return csvLines(rows);
}

/* The drawn bars as CSV: full precision, one row a bar. */
export function barCsv(all, choice) {
	const rows = [['job', 'model', 'scheme', 'protocol', 'dataset', 'metric', 'group', 'value', 'stderr', 'n']];
	for (const { cells } of barRows(all, choice))
		cells.forEach((m, i) => m && rows.push([all[i].id, all[i].model, all[i].scheme, all[i].protocol, all[i].dataset,
			m.name, m.group, m.value, m.stderr, m.n]));
	return csvLines(rows);
}

/* From a job with a result to what a chart draws, and what must be said when several are drawn
 * together. No DOM. */

import { count, perToken, protocol, scheme, span } from '/format.js';

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

/* `model`: the model's description from the list of models, or undefined when it is no longer there. */
export function seriesOf(job, model) {
	const result = job.result ?? {};
	const metrics = result.metrics ?? [];
	const params = result.task?.params ?? job.params ?? {};
	const overridden = Boolean(job.engine?.position);
	return {
		id: job.id,
		model: result.model?.name ?? job.model,
		scheme: scheme(result.model?.position ?? model?.position),
		protocol: protocol(params) || job.task,
		task: `${result.task?.name ?? job.task} v${result.task?.version ?? '?'}`,
		subset: subsetOf(params),
		dataset: result.dataset?.name ?? job.dataset,
		name: job.name ?? '',
		datasetFingerprint: result.dataset?.fingerprint ?? job.dataset,
		tokenizer: result.model?.tokenizer_fingerprint ?? null,
		context: overridden ? null : (model?.n_ctx ?? null),
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

const differ = (all, what) => new Set(all.map(what).filter((v) => v !== null)).size > 1;
const distinct = (all, what) => [...new Set(all.map(what))].join('; ');

/* What makes these curves incomparable, as sentences. */
export function cautions(all, metric) {
	const notes = [];
	if (differ(all, (s) => s.tokenizer) && perToken(metric))
		notes.push('Different tokenizers: numbers of different tokenizers do not compare. Bits per byte does.');
	if (differ(all, (s) => s.datasetFingerprint))
		notes.push(`Different datasets (${distinct(all, (s) => s.dataset)}): these curves do not compare.`);
	else if (differ(all, (s) => s.subset))
		notes.push('Different subsets of the dataset: these curves do not compare.');
	if (differ(all, (s) => s.protocol) || differ(all, (s) => s.task))
		notes.push(`Different protocols (${distinct(all, (s) => s.protocol)}): tokens see different contexts.`);
	return notes;
}

function csvField(value) {
	const text = value === null || value === undefined ? '' : String(value);
	return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/* The drawn curves as CSV: full precision, one row a point. */
export function csvOf(all, metric) {
	const rows = [['job', 'model', 'scheme', 'protocol', 'dataset', 'metric', 'length', 'value', 'stderr', 'n']];
	for (const s of all)
		for (const p of s.points(metric))
			rows.push([s.id, s.model, s.scheme, s.protocol, s.dataset, metric, p.x, p.y, p.se, p.n]);
	return rows.map((row) => row.map(csvField).join(',') + '\r\n').join('');
}

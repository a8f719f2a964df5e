/* A run's verdict: one row a rule, the worst first, with the bounds of its worsening drawn on an axis that all rows
 * share: in units of what the rule lets pass (the minimum effect), 0 and 1 marked. A bar that ends left of 1 passes;
 * another fails that begins right of 0. No state; the numbers themselves stand in a table. Rules come
 * from withMetrics. */

import { h } from '/dom.js';
import { compact, count, measure, metricLabel } from '/format.js';
import { table } from '/tables.js';

const WORST_FIRST = ['error', 'fail', 'inconclusive', 'pass'];

export const verdictChip = (verdict) => h('span', { class: `chip verdict-${verdict}` }, verdict);

const isNumber = Number.isFinite;

/* The rules, each with its metric's unit and log_ratio, as the tasks describe it. tasks: Map name -> description. */
export function withMetrics(rules, tasks) {
	const metrics = new Map([...tasks.values()].flatMap((t) => t.metrics).map((m) => [m.name, m]));
	return rules.map((r) => ({ ...r, unit: metrics.get(r.metric)?.unit, log_ratio: metrics.get(r.metric)?.log_ratio }));
}

/* -- words ------------------------------------------------------------------------------------------ */

const TYPES = {
	absolute: 'bound', relative: 'against the baseline', shape: 'over length', history: 'against the last runs',
	no_truncation: 'nothing truncated', throughput: 'speed',
};

export function ruleText(rule) {
	const over = rule.over ? ` over ${count(rule.over)}` : '';
	const metric = rule.metric && metricLabel(rule.metric) + (rule.length ? ` at ${count(rule.length)}${over}` : '');
	return [TYPES[rule.type] ?? rule.type, rule.measure, metric, rule.group].filter(Boolean).join(' · ');
}

/* What a gate's rule asks for. */
export function termsText(rule) {
	const effect = rule.min_effect && `min. effect ${allowedText(rule, rule.min_effect)}`;
	const terms = [
		isNumber(rule.min) && `at least ${rule.min}`, isNumber(rule.max) && `at most ${rule.max}`, effect,
		isNumber(rule.max_ratio) && `ratio at most ${rule.max_ratio}`, rule.test === 'point' && 'values only',
		isNumber(rule.min_ratio) && `at least ${rule.min_ratio} of the baseline`, rule.k && `last ${rule.k} runs`,
		rule.trend === 'linear' && 'linear trend',
		isNumber(rule.confidence) && rule.test !== 'point' && `confidence ${100 * rule.confidence} %`,
	];
	return terms.filter(Boolean).join(', ');
}

const signed = (text, v) => (v > 0 ? `+${text}` : text.replace('-', '−'));

/* A difference in its metric's unit: of perplexities a log-ratio, said in per cent; of accuracies in points. */
function effectText(rule, v) {
	const round = (x) => Number(x.toPrecision(3));
	if (!isNumber(v))
		return '–';
	if (rule.log_ratio)
		return `${round((Math.exp(v) - 1) * 100)} %`;
	return rule.unit === 'fraction' ? `${round(v * 100)} points` : String(round(v));
}

/* What a rule lets pass, as it is written: a log-ratio is so small that it is a share. */
function allowedText(rule, v) {
	if (!isNumber(v))
		return '–';
	return rule.log_ratio ? `${Number((100 * v).toPrecision(3))} %` : effectText(rule, v);
}

const worseText = (rule, v) => signed(effectText(rule, v), v);

const valueText = (v) => (isNumber(v) ? measure(v, null)[0] : '–');

/* A p-value. */
function chanceText(p) {
	if (!isNumber(p))
		return '–';
	return p > 0 && p < 1e-4 ? p.toExponential(1) : String(Number(p.toPrecision(3)));
}

function comparison(rule) {
	if (!isNumber(rule.value))
		return '';
	if (rule.type === 'no_truncation')
		return `${count(rule.value)} truncated`;
	if (rule.type === 'shape')
		return `ratio ${rule.value.toFixed(4)}`;
	const unit = rule.type === 'throughput' ? ' tokens/s' : '';
	const text = (v) => (rule.type === 'throughput' ? compact(v) : valueText(v));
	const before = { history: 'mean' }[rule.type] ?? 'was';
	return `${text(rule.value)}${unit}${isNumber(rule.baseline_value) ? `, ${before} ${text(rule.baseline_value)}` : ''}`;
}

/* -- the drawing ------------------------------------------------------------------------------------ */

/* The worsening that a rule's statistics look for, or NaN where it has none. */
const effectOf = (rule) => rule.min_effect ?? (rule.type === 'shape' ? Math.log(rule.limit) : NaN);

/* The worsening that a rule lets pass: its minimum effect; of a history, the bound that the last runs set. */
function allowedOf(rule) {
	if (rule.type !== 'history')
		return effectOf(rule);
	const [from, to] = [rule.baseline_value, rule.limit].map((v) => (rule.log_ratio ? Math.log(v) : v));
	return Math.abs(to - from);
}

/* [delta, lower, upper] in units of what is allowed, or null where there is nothing to draw. A bound that is null is
 * infinite; one that is not there is none. */
function boundsOf(rule) {
	const unit = allowedOf(rule);
	if (!isNumber(rule.delta) || !(unit > 0))
		return null;
	const bound = (v, infinite) => (v === undefined ? rule.delta : (v ?? infinite));
	return [rule.delta, bound(rule.lower, -Infinity), bound(rule.upper, Infinity)].map((v) => v / unit);
}

/* The axis of all rows: at least -1.2 to 3, and not so wide that what is allowed cannot be seen; what is beyond is cut,
 * and marked. */
function axisOf(rules) {
	const all = rules.map(boundsOf).filter(Boolean).flat();
	const low = Math.max(-3, Math.min(-1.2, ...all));
	const high = Math.min(4.5, Math.max(3, ...all));
	const room = (high - low) * 0.04;
	return [low - room, high + room];
}

function svg(tag, attributes, ...children) {
	const node = document.createElementNS('http://www.w3.org/2000/svg', tag);
	for (const [name, value] of Object.entries(attributes))
		node.setAttribute(name, value);
	node.append(...children);
	return node;
}

const percent = (v, [low, high]) => `${(100 * (Math.min(Math.max(v, low), high) - low)) / (high - low)}%`;

/* The lines at 0 and at what is allowed, and the ground between them. */
function scaleMarks(axis) {
	const line = (v, name) =>
		svg('line', { x1: percent(v, axis), x2: percent(v, axis), y1: '0', y2: '100%', class: name });
	const width = `${100 / (axis[1] - axis[0])}%`;
	return [svg('rect', { x: percent(0, axis), width, y: '0', height: '100%', class: 'between' }),
		line(0, 'zero'), line(1, 'effect')];
}

/* A triangle at an end of the axis: the bar goes on beyond it. */
function cutMark(right) {
	const d = right ? 'M-1 -5l6 5l-6 5z' : 'M1 -5l-6 5l6 5z';
	return svg('svg', { x: right ? '100%' : '0', y: '50%', overflow: 'visible' },
		svg('path', { d, class: 'cut', transform: `translate(${right ? -6 : 6} 0)` }));
}

/* How far a worsening is, where that is beyond the axis. */
function farText(rule, delta, axis) {
	const left = delta < axis[0];
	if (!left && delta <= axis[1])
		return null;
	const place = left ? { x: '12', 'text-anchor': 'start' } : { x: '100%', dx: '-12', 'text-anchor': 'end' };
	return svg('text', { ...place, y: '50%', dy: '4' }, worseText(rule, rule.delta));
}

function track(rule, axis) {
	const bounds = boundsOf(rule);
	if (!bounds)
		return null;
	const [delta, lower, upper] = bounds;
	const words = `worse by ${worseText(rule, rule.delta)}, between ${worseText(rule, rule.lower)} and ` +
		`${worseText(rule, rule.upper)}; ${allowedText(rule, allowedOf(rule))} is allowed`;
	const bar = svg('line', { x1: percent(lower, axis), x2: percent(upper, axis), y1: '50%', y2: '50%', class: 'bar' });
	const ends = [lower, upper].filter((v) => v >= axis[0] && v <= axis[1]).map((v) =>
		svg('line', { x1: percent(v, axis), x2: percent(v, axis), y1: '30%', y2: '70%', class: 'bar' }));
	const dot = delta >= axis[0] && delta <= axis[1] &&
		svg('circle', { cx: percent(delta, axis), cy: '50%', r: 4.5, class: 'dot' });
	const cuts = [lower < axis[0] && cutMark(false), upper > axis[1] && cutMark(true), farText(rule, delta, axis)];
	return svg('svg', { class: `track verdict-${rule.verdict}`, role: 'img', 'aria-label': words },
		...[...scaleMarks(axis), bar, ...ends, dot, ...cuts].filter(Boolean));
}

/* What stands above the tracks. */
function axisHead(axis) {
	const text = (v, words, anchor = 'middle') =>
		svg('text', { x: percent(v, axis), y: '70%', 'text-anchor': anchor }, words);
	return h('li', { class: 'rule axis', 'aria-hidden': 'true' }, svg('svg', { class: 'track' },
		text(axis[0], 'better', 'start'), text(0, '0'), text(1, 'allowed'), text(axis[1], 'worse', 'end')));
}

/* -- rows and numbers ------------------------------------------------------------------------------- */

function row(rule, axis) {
	return h('li', { class: 'rule' }, h('div', { class: 'rule-chip' }, verdictChip(rule.verdict)),
		h('div', { class: 'rule-name' }, h('strong', {}, rule.name), h('span', {}, ruleText(rule))),
		h('div', { class: 'rule-value' }, comparison(rule)), track(rule, axis),
		rule.message && h('p', { class: 'rule-message' }, rule.message));
}

/* The rules of a verdict as rows. */
export function ruleRows(rules) {
	const rank = (r) => WORST_FIRST.indexOf(r.verdict);
	const sorted = [...rules].sort((a, b) => rank(a) - rank(b));
	const axis = axisOf(sorted);
	const drawn = sorted.some(boundsOf);
	return h('ul', { class: drawn ? 'rules drawn' : 'rules' }, drawn && axisHead(axis), sorted.map((r) => row(r, axis)));
}

function limitText(rule) {
	if (!isNumber(rule.limit))
		return '–';
	const words = { shape: 'ratio ≤ ', throughput: 'ratio ≥ ' }[rule.type];
	return words ? `${words}${rule.limit}` : valueText(rule.limit);
}

/* All numbers of a verdict's rules. */
export function ruleTable(rules) {
	const head = ['Rule', 'Value', 'Baseline', 'Limit', 'Worse by', 'Lower', 'Upper', 'Min. effect', 'p', 'p (Holm)', 'n',
		'Items needed', 'Bootstrap'];
	const countText = (n) => (isNumber(n) ? count(n) : '–');
	return table('Numbers of the rules', head, rules.map((r) => [
		r.name, valueText(r.value), valueText(r.baseline_value), limitText(r), worseText(r, r.delta),
		worseText(r, r.lower), worseText(r, r.upper), allowedText(r, effectOf(r)), chanceText(r.p), chanceText(r.p_holm),
		countText(r.n), countText(r.items_needed),
		r.bootstrap ? `${worseText(r, r.bootstrap.lower)} to ${worseText(r, r.bootstrap.upper)}` : '–']));
}

/* "2 of 7 rules fail, 1 is inconclusive." */
export function summaryText(rules) {
	const words = {
		error: ['is an error', 'are errors'], fail: ['fails', 'fail'], inconclusive: ['is inconclusive', 'are inconclusive'],
	};
	const parts = Object.entries(words).map(([verdict, forms]) => {
		const n = rules.filter((r) => r.verdict === verdict).length;
		return n && `${n} ${n === 1 ? forms[0] : forms[1]}`;
	}).filter(Boolean);
	const all = `${count(rules.length)} rule${rules.length === 1 ? '' : 's'}`;
	if (parts.length)
		return `Of ${all}, ${parts.join(', ')}.`;
	return rules.length === 1 ? 'The one rule passes.' : `All ${all} pass.`;
}

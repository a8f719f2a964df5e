/* Words and digits: how numbers, times, schemes and protocols are written, everywhere the same. No DOM. */

export const METRICS = {
	ppl_token: { label: 'Perplexity per token', title: 'Perplexity against length', short: 'ppl/token' },
	nll_token: { label: 'Loss per token (nats)', title: 'Loss against length', short: 'nats/token' },
	bits_per_byte: { label: 'Bits per byte', title: 'Bits per byte against length', short: 'bits/byte' },
	ppl_word: { label: 'Perplexity per word', title: 'Perplexity against length', short: 'ppl/word' },
	ppl_doc_macro: { label: 'Perplexity, document mean', title: 'Perplexity against length', short: 'ppl, document mean' },
	nll_position: { label: 'Loss by position (nats)', title: 'Loss by position', short: 'nats/token', byPosition: true },
};
export const CURVE_METRICS = Object.keys(METRICS);

/* Names of metrics without lengths, where there is more to say than the name does. */
const WORDS = {
	accuracies: 'Accuracy', acc: 'Accuracy', acc_norm: 'Accuracy by characters', acc_bytes: 'Accuracy by bytes',
	acc_token: 'Accuracy by tokens', ppl: 'Perplexity', logprob: 'Mean log-probability',
};

export const metricLabel = (name) => WORDS[name] ?? METRICS[name]?.label ?? sentence(name.replaceAll('_', ' '));

/* Metrics that count tokens: what another tokenizer makes incomparable. */
export const perToken = (metric) => /^(nll|ppl)_token$|_doc_macro$|_position$/.test(metric);

const integers = new Intl.NumberFormat('en-US', { maximumFractionDigits: 0 });

export const count = (n) => integers.format(n);

/* The positions of a bin, [from, to): "1,025 to 1,448". */
export const span = ({ from, to }) => (to - from > 1 ? `${count(from)} to ${count(to - 1)}` : count(from));

/* 1234567 -> "1.23M": three digits that a glance can compare. */
export function compact(n) {
	for (const [size, suffix] of [[1e12, 'T'], [1e9, 'B'], [1e6, 'M'], [1e3, 'k']])
		if (n >= size * 0.9995)
			return Number((n / size).toPrecision(3)) + suffix;
	return String(Math.round(n));
}

function decimalsFor(value, stderr) {
	if (stderr > 0)
		return Math.min(6, Math.max(0, 1 - Math.floor(Math.log10(stderr)))); /* two digits of the stderr */
	const size = Math.abs(value);
	return size >= 1000 ? 1 : size >= 100 ? 2 : size >= 10 ? 3 : 4;
}

const fixed = (v, decimals) =>
	v.toLocaleString('en-US', { minimumFractionDigits: decimals, maximumFractionDigits: decimals });

/* A metric's value with as many digits as its standard error deserves, and that error apart: ["20.13",
 * "0.42"]. */
export function measure(value, stderr) {
	if (typeof value !== 'number')
		return ['–', ''];
	if (Math.abs(value) >= 1e7)
		return [value.toExponential(3), stderr > 0 ? stderr.toExponential(1) : ''];
	const decimals = decimalsFor(value, stderr);
	return [fixed(value, decimals), stderr > 0 ? fixed(stderr, decimals) : ''];
}

/* A metric object's value and standard error: a count, a fraction with the four digits that the field prints
 * ("0.3256 ± 0.0065"), or as measureText. */
export function metricText(m) {
	if (typeof m?.value !== 'number')
		return '–';
	if (m.unit === 'items')
		return count(m.value);
	if (m.unit === 'fraction')
		return fixed(m.value, 4) + (typeof m.stderr === 'number' ? ` ± ${fixed(m.stderr, 4)}` : '');
	return measureText(m.value, m.stderr);
}

/* A job's headline, its metric in lists: ["19.52 ± 0.53", "ppl/token at 4,096"]. */
export function headlineText(m) {
	if (typeof m?.value !== 'number')
		return ['', ''];
	const name = METRICS[m.name]?.short ?? m.name;
	return [metricText(m), m.length > 0 ? `${name} at ${count(m.length)}` : name];
}

export function measureText(value, stderr) {
	const [v, se] = measure(value, stderr);
	return se ? `${v} ± ${se}` : v;
}

export function duration(seconds) {
	if (!(seconds >= 0))
		return '';
	if (seconds < 10)
		return `${seconds.toFixed(1)} s`;
	if (seconds < 90)
		return `${Math.round(seconds)} s`;
	if (seconds < 5400)
		return `${Math.round(seconds / 60)} min`;
	if (seconds < 129600)
		return `${Number((seconds / 3600).toPrecision(2))} h`;
	return `${Math.round(seconds / 86400)} days`;
}

export function age(then, now = Date.now()) {
	const seconds = (now - then) / 1000;
	return seconds < 5 ? 'just now' : `${duration(Math.round(seconds / 5) * 5).replace('.0', '')} ago`;
}

export const dateTime = (ms) =>
	new Date(ms).toLocaleString(undefined, { dateStyle: 'medium', timeStyle: 'medium' });

/* A time of the API, RFC 3339 text or null, in Unix milliseconds; 0 when there is none. */
export const timeOf = (text) => Date.parse(text) || 0;

export const shortCommit = (commit) => (/^[0-9a-f]{12,}$/.test(commit ?? '') ? commit.slice(0, 8) : (commit ?? ''));

/* {"type":"yarn","factor":4} -> "YaRN ×4". */
export function scheme(position) {
	if (!position?.type)
		return '';
	const names = { rope: 'RoPE', yarn: 'YaRN', linear: 'RoPE linear', pope: 'PoPE' };
	const name = names[position.type] ?? position.type;
	return position.factor > 1 ? `${name} ×${Number(position.factor.toPrecision(4))}` : name;
}

/* What leaves part of the data out: no protocol. */
const SUBSETS = ['limit', 'max_docs', 'max_tokens_per_doc', 'min_doc_tokens'];

/* "limit 100". */
export const subsetText = (params) => SUBSETS.slice(0, 3)
	.filter((name) => (params?.[name] ?? null) !== null)
	.map((name) => `${name.replaceAll('_', ' ')} ${count(params[name])}`).join(', ');

/* Every parameter that is not the task's default: "shots 5, ties wrong". */
function unusual(params, task) {
	const plain = (v) => JSON.stringify(v ?? null);
	const word = (v) => (typeof v === 'boolean' ? (v ? 'on' : 'off') : v);
	return (task?.params ?? [])
		.filter((p) => p.name in params && !SUBSETS.includes(p.name) && plain(params[p.name]) !== plain(p.default))
		.map((p) => `${p.name.replaceAll('_', ' ')} ${word(params[p.name])}`)
		.join(', ');
}

/* The part of a task's parameters that changes what its number means: "sliding, stride 256, BOS per
 * document". `task`: its description, or undefined. */
export function protocol(params, task) {
	if (!params)
		return '';
	if (!params.protocol)
		return unusual(params, task);
	const words = [];
	words.push(params.protocol);
	if (params.protocol === 'sliding' && params.stride)
		words.push(`stride ${params.stride}`);
	if (params.bos && params.bos !== 'none')
		words.push(`BOS per ${params.bos}`);
	if (params.last_window === 'drop')
		words.push('last window dropped');
	return words.join(', ');
}

/* An API name for people: max_docs -> "Max docs". */
export const labelOf = (name) =>
	({ bos: 'BOS', n_shot: 'Number of shots' })[name] ?? sentence(name.replaceAll('_', ' '));

export const sentence = (text) => (text ? text[0].toUpperCase() + text.slice(1) : '');

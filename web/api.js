/* The API's client: JSON in, JSON out, and every failure an ApiError with words that can be shown. */

export const BASE = '/api/v1';

/* `fields`: [{pointer, detail}] from problem+json, pointer without a leading '#'. status 0: the server
 * did not answer. */
export class ApiError extends Error {
	constructor(status, message, fields = []) {
		super(message);
		this.name = 'ApiError';
		this.status = status;
		this.fields = fields;
	}
}

function problemOf(status, body) {
	const message = body?.detail || body?.title || `the server answered ${status}`;
	const listed = Array.isArray(body?.errors) ? body.errors : [];
	const fields = (listed.length ? listed : [body ?? {}])
		.filter((f) => typeof f.pointer === 'string')
		.map((f) => ({ pointer: f.pointer.replace(/^#/, ''), detail: f.detail || message }));
	return new ApiError(status, message, fields);
}

/* `parse`: what a good answer's text is read with; a problem is JSON. */
async function call(path, options = {}, parse = JSON.parse) {
	let response, text;
	try {
		response = await fetch(path, { headers: { Accept: 'application/json' }, cache: 'no-store', ...options });
		text = await response.text();
	} catch (e) {
		if (e.name === 'AbortError')
			throw e;
		throw new ApiError(0, 'the server does not answer');
	}
	let body = null;
	try {
		body = text ? (response.ok ? parse : JSON.parse)(text) : null;
	} catch {
		throw new ApiError(response.status, `the server answered ${response.status}, and not in JSON`);
	}
	if (!response.ok)
		throw problemOf(response.status, body);
	return body;
}

const posted = (body, headers = {}) =>
	({ method: 'POST', headers: { 'Content-Type': 'application/json', ...headers }, body: JSON.stringify(body) });

const parseLines = (text) => text.split('\n').filter(Boolean).map((line) => JSON.parse(line));

export const jobPath = (id, rest = '') => `${BASE}/jobs/${encodeURIComponent(id)}${rest}`;

export const gatePath = (name, rest = '') => `${BASE}/gates/${encodeURIComponent(name)}${rest}`;

export const baselinePath = (name, rest = '') => `${BASE}/baselines/${encodeURIComponent(name)}${rest}`;

export const curvePath = (ids, metric) => `${BASE}/curve.svg?jobs=${ids.join(',')}&metric=${metric}`;

export const api = {
	health: () => call('/healthz'),
	models: async () => (await call(`${BASE}/models`)).data,
	tasks: async () => (await call(`${BASE}/tasks`)).data,
	datasets: async () => (await call(`${BASE}/datasets`)).data,
	workers: async () => (await call(`${BASE}/workers`)).data,

	/* {data, next} of the page below job `after` (0: from the newest), of those that `filter` ({state, model, task})
	 * lets through; null: of all. */
	jobs(limit, after = 0, filter = null) {
		const query = new URLSearchParams({ limit, ...filter });
		if (after)
			query.set('after', after);
		return call(`${BASE}/jobs?${query}`);
	},
	job: (id) => call(jobPath(id)),

	/* A page of a finished job's items. correct: 'true', 'false', or '' for all. */
	async items(id, { limit, skip, correct }) {
		const query = new URLSearchParams({ limit, skip });
		if (correct)
			query.set('correct', correct);
		return (await call(jobPath(id, `/items?${query}`), {}, parseLines)) ?? [];
	},
	cancel: (id) => call(jobPath(id, '/cancel'), { method: 'POST' }),
	restart: (id) => call(jobPath(id, '/restart'), { method: 'POST' }),
	remove: (id) => call(jobPath(id), { method: 'DELETE' }),
	submit: (job, idempotencyKey) => call(`${BASE}/jobs`, posted(job, { 'Idempotency-Key': idempotencyKey })),

	gates: async () => (await call(`${BASE}/gates`)).data,
	gate: (name) => call(gatePath(name)),

	/* {data, next} of a gate's runs below run `after` (0: from the newest); branch '': of all. */
	runs(name, { limit, after = 0, branch = '' }) {
		const query = new URLSearchParams({ limit });
		if (after)
			query.set('after', after);
		if (branch)
			query.set('branch', branch);
		return call(gatePath(name, `/runs?${query}`));
	},
	run: (name, id) => call(gatePath(name, `/runs/${id}`)),
	cancelRun: (name, id) => call(gatePath(name, `/runs/${id}/cancel`), { method: 'POST' }),

	/* A rule's values, run after run, and where their level changed. branch '': of all. */
	history(gate, rule, branch) {
		const query = new URLSearchParams({ gate, rule });
		if (branch)
			query.set('branch', branch);
		return call(`${BASE}/history?${query}`);
	},

	baselines: async () => (await call(`${BASE}/baselines`)).data,
	baseline: (name) => call(baselinePath(name)),

	/* A new baseline; or, with the ETag of the one that it replaces, a new version: a 412 when somebody else made one
	 * meanwhile. */
	pin: (name, jobs, etag = null) =>
		call(`${BASE}/baselines`, posted({ name, jobs }, etag ? { 'If-Match': `"${etag}"` } : {})),
};

/* crypto.randomUUID exists only in secure contexts, and a page on another machine's port is none. */
export function newKey() {
	const bytes = crypto.getRandomValues(new Uint8Array(16));
	return [...bytes].map((b) => b.toString(16).padStart(2, '0')).join('');
}

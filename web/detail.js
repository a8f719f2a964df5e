/* A job's own page, #/jobs/12: what was asked, how it goes, what came out, and what pins it. */

import { ApiError, BASE, api, jobPath } from '/api.js';
import { pinDialog } from '/baselines.js';
import { announce, confirmed, h, setHidden, setText, words } from '/dom.js';
import { figureOf, newFigure } from '/figures.js';
import { count, dateTime, duration, headlineText, labelOf, timeOf } from '/format.js';
import { Items } from '/items.js';
import { isActive, newChip, newProgress, showChip, showProgress, titleOf } from '/jobs.js';
import { seriesOf } from '/series.js';
import { metricTables } from '/tables.js';

/* -- small pieces ----------------------------------------------------------------------------------- */

const text = (value) => {
	if (value === null || value === undefined)
		return '–';
	if (Array.isArray(value))
		return value.map(text).join(', ');
	if (typeof value === 'object')
		return Object.entries(value).map(([k, v]) => `${k} ${text(v)}`).join(', ');
	return String(value);
};

function facts(title, entries, more = null) {
	const shown = entries.filter(([, value]) => ![undefined, null, '', false].includes(value));
	return h('section', { class: 'panel' }, h('h2', {}, title),
		h('dl', { class: 'facts' }, shown.map(([name, value]) =>
			h('div', {}, h('dt', {}, name), h('dd', {}, value instanceof Node ? value : text(value))))), more);
}

/* The command that submits this job again. `description`: of its task, or undefined. */
function curlOf({ model, task, dataset, params, engine, name }, description) {
	const given = Object.fromEntries(Object.entries(params ?? {}).filter(([, value]) => value !== null));
	const made = given[description?.generated_by] !== undefined; /* then there is no dataset to name */
	const body = { model, task, dataset: made ? undefined : dataset, params: given, engine, name: name ?? undefined };
	const quoted = `'${JSON.stringify(body).replaceAll("'", "'\\''")}'`;
	return `curl ${location.origin}${BASE}/jobs -H 'Content-Type: application/json' \\\n  -d ${quoted}`;
}

const fingerprint = (value) =>
	value ? h('code', { class: 'hash', title: value }, value.replace(/^sha256:/, '')) : null;

/* -- the page --------------------------------------------------------------------------------------- */

export class Detail {
	/* root: the article to fill. onGone(): the job was deleted. onChanged(): it was cancelled.
	 * models(), tasks(): Maps of descriptions. */
	constructor(root, { models, tasks, onGone, onChanged }) {
		this.root = root;
		this.models = models;
		this.tasks = tasks;
		this.onGone = onGone;
		this.onChanged = onChanged;
	}

	/* Shows a job for the first time. */
	open(id) {
		this.id = id;
		this.shown = '';
		this.close();
		this.chip = newChip();
		this.progress = newProgress();
		this.heading = h('h1', { tabindex: '-1' }, `Job ${id}`);
		this.sub = h('p', { class: 'quiet' });
		this.alert = h('div', { class: 'form-alert', role: 'alert', hidden: true });
		const button = (label, onclick) =>
			h('button', { class: 'button small', type: 'button', hidden: true, onclick }, label);
		this.pin = button('Pin as baseline', () => this.askPin());
		this.cancel = button('Cancel job', () => this.askCancel());
		this.restart = button('Run again', () => this.askRestart());
		this.remove = button('Delete job', () => this.askDelete());
		this.body = h('div', { class: 'detail-body' });
		this.root.replaceChildren(h('p', {}, h('a', { class: 'back', href: '#/' }, '← All jobs')),
			h('header', { class: 'detail-head' }, h('div', {}, this.heading, this.sub), this.chip,
				h('div', { class: 'buttons' }, this.pin, this.cancel, this.restart, this.remove)),
			this.progress, this.alert, this.body);
		this.heading.focus({ preventScroll: true });
		window.scrollTo(0, 0);
	}

	/* Before another is opened, or none. */
	close() {
		this.job = null;
		this.dropFigure();
	}

	dropFigure() {
		this.figure?.destroy();
		this.figure = null;
	}

	/* When what models() and tasks() say has changed. */
	refresh() {
		if (this.job)
			this.update(this.job);
	}

	/* Updates in place; the body is made anew only when something in it changed. */
	update(job) {
		this.job = job;
		const title = titleOf(job, this.models());
		setText(this.heading, `${title.model} on ${job.dataset ?? job.task}`);
		setText(this.sub, [`Job ${job.id}`, job.name, title.scheme, job.task].filter(Boolean).join(' · '));
		showChip(this.chip, job);
		showProgress(this.progress, job);
		setHidden(this.pin, job.state !== 'succeeded');
		setHidden(this.cancel, !isActive(job));
		this.cancel.disabled = job.state === 'cancelling';
		setHidden(this.restart, isActive(job) && !job.waiting);
		setHidden(this.remove, isActive(job));
		const body = JSON.stringify([this.models().get(job.model), this.tasks().get(job.task), { ...job, progress: null }]);
		if (body === this.shown)
			return;
		this.shown = body;
		this.body.replaceChildren(...this.parts(job).filter(Boolean));
	}

	parts(job) {
		const result = job.result ?? job.partial ?? null;
		return [this.errorPart(job), this.warningsPart(job), this.figurePart(job), this.metricsPart(job, result),
			this.requestPart(job, result), this.pinsPart(job, result)];
	}

	errorPart(job) {
		if (!job.error)
			return null;
		const units = job.error.units ?? [];
		const listed = `Units: ${units.slice(0, 20).join(', ')}${units.length > 20 ? ', …' : ''}`;
		return h('div', { class: 'form-alert' }, h('strong', {}, 'Failed: '), words(job.error.message),
			units.length > 0 && h('p', {}, listed));
	}

	warningsPart(job) {
		const all = [...new Set([...(job.warnings ?? []), ...(job.result?.warnings ?? [])].map(text))];
		return all.length ? h('ul', { class: 'notes' }, all.map((w) => h('li', {}, words(w)))) : null;
	}

	/* What the result looks like: the figure of its task. */
	figurePart(job) {
		this.dropFigure();
		if (!job.result)
			return null;
		const root = h('section', { class: 'panel chart', 'aria-labelledby': 'one' });
		this.figure = newFigure(figureOf(job, this.tasks()), root, { id: 'one' });
		if (!this.figure)
			return null;
		const series = seriesOf(job, this.models().get(job.model), this.tasks().get(job.task));
		const figure = this.figure;
		const none = h('p', {}, 'There is nothing to draw: no metric has a value.');
		requestAnimationFrame(() => figure === this.figure && figure.show([series], none)); /* once it has a size */
		return root;
	}

	metricsPart(job, result) {
		if (!result?.metrics)
			return job.links?.items && !isActive(job) ? this.itemsPart(job) : null;
		const partial = !job.result || result.partial;
		const title = partial ? 'Metrics of what was computed' : 'Metrics';
		const [value, name] = headlineText(job.headline);
		return h('section', { class: 'panel' },
			h('header', { class: 'panel-head' }, h('h2', {}, title), this.downloads(job, partial)),
			partial && h('p', { class: 'quiet' }, 'Over the units that stand; not the result of the job.'),
			value && h('p', { class: 'headline' }, h('strong', {}, value), ` ${name}`),
			metricTables(result.metrics), this.browser(job));
	}

	/* A new one a job, so that what is open stays open while the rest of the page is made anew. */
	browser(job) {
		if (isActive(job) || !job.links?.items)
			return null;
		const of = `${job.id} ${timeOf(job.finished_at)}`;
		if (this.browserOf !== of)
			this.items = new Items(job);
		this.browserOf = of;
		return this.items.node;
	}

	itemsPart(job) {
		return h('section', { class: 'panel' },
			h('header', { class: 'panel-head' }, h('h2', {}, 'What was computed'), this.downloads(job, true)),
			h('p', { class: 'quiet' }, 'The job did not end, so that there are no metrics; its items can be read.'),
			this.browser(job));
	}

	downloads(job, partial) {
		const link = (name, rest, suffix) =>
			h('a', { class: 'button small', href: jobPath(job.id, rest), download: `job-${job.id}${suffix}` }, name);
		const result = [link('JSON', '/result.json', '.json'), link('CSV', '/result.csv', '.csv'),
			link('Markdown', '/result.md', '.md')];
		return h('div', { class: 'tools' }, !partial && result, link('Items', '/items', '-items.jsonl'));
	}

	requestPart(job, result) {
		const params = result?.task?.params ?? job.params ?? {};
		const tags = Object.entries(job.tags ?? {}).map(([k, v]) => `${k}=${v}`).join(', ');
		return facts('Request', [['Model', job.model], ['Task', job.task], ['Dataset', job.dataset],
			...Object.entries(params).map(([name, value]) => [labelOf(name), value === null ? 'not set' : value]),
			['Device', job.engine?.device], ['Dtype', job.engine?.dtype],
			['Position override', job.engine?.position], ['Priority', job.priority || null], ['Tags', tags],
			...['created', 'started', 'finished'].map((what) => [labelOf(what), this.time(job[`${what}_at`])])],
		h('details', {}, h('summary', {}, 'As curl'), h('pre', { class: 'scroll', tabindex: '0' }, curlOf(job, this.tasks().get(job.task)))));
	}

	time(text) {
		return text ? dateTime(timeOf(text)) : null;
	}

	pinsPart(job, result) {
		const plan = job.plan ?? {};
		const model = result?.model ?? plan.model ?? {};
		const dataset = result?.dataset ?? plan.dataset ?? {};
		const engine = result?.engine ?? plan.engine;
		if (!model.fingerprint && !engine)
			return null;
		return facts(`What it ${isActive(job) ? 'is' : 'was'} measured with`, [['Model', fingerprint(model.fingerprint)],
			['Tokenizer', fingerprint(model.tokenizer_fingerprint)], ['Dataset', fingerprint(dataset.fingerprint)],
			['Parameters', model.n_params && count(model.n_params)],
			['Items', dataset.n_items && count(dataset.n_items)],
			['Position', model.position],
			['Device', engine && [engine.device, engine.device_name].filter(Boolean).join(', ')],
			['Dtype', engine?.dtype],
			['Engine', engine?.signature ?? engine?.version], ['Tokens', engine?.tokens && count(engine.tokens)],
			['Time', engine?.seconds && duration(engine.seconds)],
			['Speed', engine?.tokens_per_s && `${count(engine.tokens_per_s)} tokens/s`],
			['Utilisation', engine?.mfu > 0 && `${Math.round(100 * engine.mfu)} % of the device's peak`]]);
	}

	async act(call, then) {
		try {
			setHidden(this.alert, true);
			await call();
			then();
		} catch (error) {
			if (!(error instanceof ApiError))
				throw error;
			setText(this.alert, error.message);
			setHidden(this.alert, false);
		}
	}

	async askPin() {
		let made = null;
		await this.act(async () => {
			made = await pinDialog(this.job);
		}, () => {});
		if (!made)
			return;
		announce(`Pinned as ${made.name}, version ${made.version}`);
		location.hash = '#/gates'; /* where baselines are listed */
	}

	async askCancel() {
		const id = this.id;
		const consequence = 'It stops soon. What was computed stays readable.';
		if (await confirmed(`Cancel job ${id}?`, consequence, 'Cancel the job'))
			await this.act(() => api.cancel(id), this.onChanged);
	}

	async askRestart() {
		const id = this.id;
		const consequence = 'What it computed is dropped; everything is measured anew.';
		if (await confirmed(`Run job ${id} again?`, consequence, 'Run it again'))
			await this.act(() => api.restart(id), this.onChanged);
	}

	async askDelete() {
		const id = this.id;
		if (await confirmed(`Delete job ${id}?`, 'Its result and items are removed for good.', 'Delete the job'))
			await this.act(() => api.remove(id), this.onGone);
	}
}

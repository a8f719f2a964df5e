/* The page: routes (#/, #/jobs/12, #/gates...), the polling loop, and which jobs are drawn. It owns the state;
 * the modules beside it draw what they are given.
 *
 * Polling: each second while a job is active, slower when nothing moves, much slower in a hidden tab,
 * and backing off while the server is away. A finished job's result never changes, so it is fetched
 * once. */

import { ApiError, api } from '/api.js';
import { Detail } from '/detail.js';
import { $, announce, h, reconcile, setAttr, setHidden, setText } from '/dom.js';
import { figureOf, isDrawable, newFigure } from '/figures.js';
import { Filter } from '/filter.js';
import { timeOf } from '/format.js';
import { Gates, gateRoute } from '/gates.js';
import { countText, isActive, showJobs } from '/jobs.js';
import { seriesOf, subsetOf } from '/series.js';
import { SubmitForm } from '/submit.js';

const PAGE = 50;         /* jobs a page */
const MAX_AUTO = 6;      /* jobs drawn when nobody ticked any */
const ACTIVE_MS = 1000;
const IDLE_MS = 4000;
const HIDDEN_MS = 15000;
const LISTS_MS = 60000;  /* how old the lists of models and datasets may be */

const state = {
	models: new Map(), tasks: new Map(), workers: [], version: '',
	jobs: [],            /* the newest of all */
	found: null,         /* the newest that the filter lets through; null: it lets all through */
	older: [], next: null, /* what stands below those in the list */
	loaded: false, failures: 0,
	ticked: null,        /* Set of job ids; null: nobody ticked, so the page chooses */
	task: null,          /* of the chart; null: nobody chose */
	results: new Map(),  /* id -> { key, job with its result, null until it is there } */
	listsAt: -Infinity, drawnKey: '',
};

const listedJobs = () => [...(state.found ?? state.jobs), ...state.older];
const allJobs = () => [...state.jobs, ...listedJobs()];

/* -- which jobs are drawn --------------------------------------------------------------------------- */

const drawable = (job) => isDrawable(job, state.tasks);

/* A job of the list, or one that was fetched because the address named it. */
const knownJob = (id) => allJobs().find((j) => j.id === id) ?? state.results.get(id)?.job;

/* The task on the chart: the chosen one, else that of the newest ticked job, else of the newest that can be
 * drawn. */
function shownTask() {
	const ticked = [...(state.ticked ?? [])].sort((a, b) => b - a).map(knownJob).find(Boolean);
	return state.task ?? ticked?.task ?? listedJobs().find(drawable)?.task ?? null;
}

/* The newest jobs that compare with the newest one (same task, dataset and subset; of curves, tokenizer, too),
 * once each model and parameters. */
function autoChoice() {
	const jobs = listedJobs().filter((j) => drawable(j) && j.task === shownTask());
	const kind = (j) => JSON.stringify([j.dataset, subsetOf(j.params),
		figureOf(j, state.tasks) === 'curve' && j.plan?.model?.tokenizer_fingerprint]);
	const seen = new Set();
	const fresh = (j) => {
		const key = JSON.stringify([j.model, j.params, j.engine]);
		return !seen.has(key) && seen.add(key);
	};
	const chosen = jobs.filter((j) => kind(j) === kind(jobs[0]) && fresh(j));
	return new Set(chosen.slice(0, MAX_AUTO).map((j) => j.id));
}

const drawnIds = () => state.ticked ?? autoChoice();

/* A chart is of one task: ticking a job of another begins a new one. */
function tick(id, on) {
	const task = knownJob(id)?.task ?? shownTask();
	const other = on && task !== shownTask();
	state.ticked = new Set(other ? [] : drawnIds());
	state.task = task;
	if (other)
		figure.wish = null;
	if (on)
		state.ticked.add(id);
	else
		state.ticked.delete(id);
	chartChanged();
}

function chooseTask(task) {
	state.task = task;
	state.ticked = null;
	figure.wish = null;
	chartChanged();
}

function chartChanged() {
	writeHash();
	refreshChart();
	showList();
}

/* The chart is in the address, so that it can be kept and sent. */
function writeHash() {
	if ($('overview').hidden)
		return;
	const query = new URLSearchParams();
	if (state.task && !state.ticked)
		query.set('task', state.task);
	if (state.ticked)
		query.set('jobs', [...state.ticked].join(','));
	if (figure.wish && figure.wish !== figure.choices()[0]?.[0])
		query.set('metric', figure.wish);
	const text = query.toString().replaceAll('%2C', ',');
	history.replaceState(null, '', text ? `#/?${text}` : '#/');
}

function readHash() {
	const query = new URLSearchParams(location.hash.split('?')[1] ?? '');
	if (query.has('jobs'))
		state.ticked = new Set(query.get('jobs').split(',').map(Number).filter((n) => n > 0));
	if (query.has('task'))
		state.task = query.get('task');
	if (query.has('metric'))
		figure.wish = query.get('metric');
}

const resultKey = (job) => `${job.id} ${timeOf(job.finished_at)}`;

/* `listed`: the job in the list, or undefined when it is older than what the list shows. */
async function fetchResult(id, listed) {
	const key = listed ? resultKey(listed) : 'unlisted';
	if (state.results.get(id)?.key === key)
		return;
	const entry = { key, job: null };
	state.results.set(id, entry);
	try {
		entry.job = await api.job(id);
	} catch (error) {
		if (error.status !== 404)
			state.results.delete(id); /* the next poll tries again */
	}
}

/* The panel's figure is replaced when it is to be of another kind. */
function useFigure(kind) {
	if (kind === figureKind)
		return;
	const { wish } = figure;
	figure.destroy();
	figureKind = kind;
	figure = makeFigure(wish);
}

/* Fetches what is missing of the drawn results, then redraws when what is drawn changed. */
async function refreshChart() {
	const listed = new Map(allJobs().map((j) => [j.id, j]));
	const wanted = () => [...drawnIds()].filter((id) => !listed.has(id) || drawable(listed.get(id)));
	await Promise.all(wanted().map((id) => fetchResult(id, listed.get(id))));
	const fetched = wanted().map((id) => state.results.get(id)?.job); /* somebody may have unticked meanwhile */
	const here = (j) => j && drawable(j) && j.task === shownTask();
	const ready = fetched.filter(here).sort((a, b) => a.id - b.id);
	const models = [...state.models.values()].map((m) => [m.name, m.n_ctx]);
	const tasks = [...new Set(allJobs().filter(drawable).map((j) => j.task))].sort();
	const key = JSON.stringify([ready.map(resultKey), models, [...state.tasks.keys()], tasks, shownTask(), emptyText()]);
	if (key === state.drawnKey)
		return;
	state.drawnKey = key;
	const choosing = document.activeElement === figure.task;
	if (ready.length)
		useFigure(figureOf(ready[0], state.tasks));
	figure.setTasks(tasks, shownTask() ?? '');
	if (choosing)
		figure.task.focus();
	figure.show(ready.map((j) => seriesOf(j, state.models.get(j.model), state.tasks.get(j.task))), emptyNode());
	showList(); /* colours are settled now */
}

/* -- empty states ----------------------------------------------------------------------------------- */

function emptyText() {
	if (!state.loaded)
		return ['Loading', ''];
	if (listedJobs().some(drawable))
		return ['No job is ticked', 'Tick jobs in the list to draw them here, one beside the other.'];
	if (filter.query())
		return ['Nothing to draw', 'None of the jobs that the list shows has a result with a number.'];
	if (allJobs().some(isActive))
		return ['The first result is being measured', 'It is drawn here when its job is done; the list shows how far it is.'];
	return ['No result yet', 'Tick one or more models in the form, choose a task and a dataset, and press Evaluate. ' +
		'Curves and accuracies are drawn here when the jobs are done.'];
}

function emptyNode() {
	const [title, text] = emptyText();
	return h('div', {}, h('strong', {}, title), h('p', {}, text));
}

/* -- drawing ---------------------------------------------------------------------------------------- */

function showList() {
	const jobs = listedJobs();
	showJobs($('jobs'), jobs, { models: state.models, tasks: state.tasks, drawn: drawnIds(), onTick: tick });
	setText($('jobs-count'), countText(jobs, state.next));
	setHidden($('filter'), !allJobs().length);
	setHidden($('jobs-more'), !state.next);
	const none = filter.query() ? 'No such job.' : 'No jobs yet. The form starts one, and so does the API: POST /api/v1/jobs.';
	setText($('jobs-empty'), state.loaded ? none : 'Loading');
	setHidden($('jobs-empty'), jobs.length > 0);
}

function showWorkers() {
	const row = () =>
		h('li', {}, ['worker-name', 'chip', 'quiet'].map((name) => h('span', { class: name })));
	reconcile($('workers'), state.workers.map((w, i) => ({ ...w, i })), (w) => w.i, row, (node, w) => {
		const [name, chip, facts] = node.children;
		setText(name, w.device ?? w.spec);
		setText(chip, w.state.replaceAll('_', ' '));
		chip.className = `chip worker-${w.state}`;
		const machine = w.device_name ?? (w.signature ?? '').split('; ').slice(1, 3).join(' · ');
		const memory = w.memory_bytes > 0 && `${(w.memory_bytes / 2 ** 30).toFixed(1)} GB free`;
		const words = [w.error, machine, w.isa, memory, w.job && `job ${w.job}`, w.restarts > 0 && `restarts: ${w.restarts}`];
		setText(facts, words.filter(Boolean).join(' · '));
	});
	setText($('workers-empty'), 'No worker is running: jobs wait. Start the server with --workers cpu.');
	setHidden($('workers-empty'), state.workers.length > 0 || !state.loaded);
}

function showStatus() {
	const running = state.jobs.filter((j) => j.state === 'running').length;
	const queued = state.jobs.filter((j) => j.state === 'queued').length;
	const parts = [running && `${running} running`, queued && `${queued} waiting`];
	const able = !state.loaded || state.workers.some((w) => !['unusable', 'backing_off'].includes(w.state));
	const words = [...parts, !able && 'no worker'].filter(Boolean).join(', ') || 'idle';
	$('status').className = `status ${state.failures || !able ? 'away' : running ? 'busy' : 'idle'}`;
	setText($('status'), state.failures ? 'offline' : words);
	$('status').title = state.version ? `fathom ${state.version}` : '';
	const page = [$('detail'), $('gates')].find((part) => !part.hidden)?.querySelector('h1')?.textContent;
	document.title = [running + queued > 0 && `(${running + queued})`, page && `${page} ·`, 'fathom'].filter(Boolean).join(' ');
}

function showBanner(error) {
	setText($('banner'), error ? `${error.message}. Trying again.`.replace(/^./, (c) => c.toUpperCase()) : '');
	setHidden($('banner'), !error);
}

/* -- polling ---------------------------------------------------------------------------------------- */

let timer = 0, polling = false, again = false;

/* Says when a job that was active is so no more. */
function announceEnds(before, after) {
	const was = new Map(before.map((j) => [j.id, j]));
	for (const job of after)
		if (!isActive(job) && was.has(job.id) && isActive(was.get(job.id)))
			announce(`Job ${job.id}, ${job.model}: ${job.state}`);
}

async function pollJobs() {
	const wanted = filter.query();
	const [page, found] = await Promise.all([api.jobs(PAGE), wanted && api.jobs(PAGE, 0, wanted)]);
	announceEnds(state.jobs, page.data);
	state.jobs = page.data;
	state.loaded = true;
	if (JSON.stringify(wanted) !== JSON.stringify(filter.query()))
		return; /* somebody chose others meanwhile */
	state.found = found?.data ?? null;
	const shown = found ?? page;
	const last = shown.data.at(-1)?.id ?? 0;
	state.older = state.older.filter((j) => j.id < last);
	if (!state.older.length)
		state.next = shown.next;
}

/* What is ticked stays: a comparison is put together from several lists. */
function filterChanged() {
	state.older = [];
	state.next = null;
	poll();
}

function takeModels(models) {
	state.models = new Map(models.map((m) => [m.name, m]));
	form.setModels(models);
	filter.offer('model', models.map((m) => m.name));
	listsChanged();
}

function takeTasks(tasks) {
	state.tasks = new Map(tasks.map((t) => [t.name, t]));
	form.setTasks(tasks);
	filter.offer('task', tasks.map((t) => t.name));
	listsChanged();
}

/* Rows, chart and a job's page say what descriptions tell them. */
function listsChanged() {
	showList();
	refreshChart();
	detail.refresh();
}

/* Beside the polling, not in its way: a model that the server sees for the first time takes a while to
 * be described. */
function pollLists() {
	if (performance.now() - state.listsAt < LISTS_MS)
		return;
	state.listsAt = performance.now();
	const failed = (error) => {
		if (!(error instanceof ApiError))
			throw error;
		state.listsAt = -Infinity;
	};
	api.tasks().then(takeTasks).catch(failed);
	api.datasets().then((datasets) => form.setDatasets(datasets)).catch(failed);
	api.models().then(takeModels).catch(failed);
}

async function pollDetail() {
	const id = currentJob();
	if (!id)
		return;
	try {
		const job = await api.job(id);
		if (currentJob() === id)
			detail.update(job);
	} catch (error) {
		if (!(error instanceof ApiError) || error.status !== 404)
			throw error;
		$('detail').replaceChildren(h('p', {}, h('a', { class: 'back', href: '#/' }, '← All jobs')),
			h('h1', {}, `Job ${id} is not there`), h('p', { class: 'quiet' }, 'It may have been deleted.'));
	}
}

async function pollAll() {
	if (!state.tasks.size)
		takeTasks(await api.tasks()); /* first: they say what is drawn of a job */
	state.workers = await api.workers();
	await Promise.all([pollJobs(), pollDetail(), gates.poll()]);
	showList();
	showWorkers();
	form.setWorkers(state.workers);
	await refreshChart();
}

function nextDelay() {
	if (document.hidden)
		return HIDDEN_MS;
	if (state.failures)
		return Math.min(ACTIVE_MS * 2 ** state.failures, HIDDEN_MS);
	return state.jobs.some(isActive) || gates.isBusy() ? ACTIVE_MS : IDLE_MS;
}

async function poll() {
	if (polling) {
		again = true;
		return;
	}
	clearTimeout(timer);
	polling = true;
	again = false;
	try {
		await pollAll();
		pollLists();
		state.failures = 0;
		showBanner(null);
	} catch (error) {
		if (!(error instanceof ApiError))
			throw error;
		state.failures++;
		state.listsAt = -Infinity;
		showBanner(error);
	} finally {
		polling = false;
		showStatus();
		timer = setTimeout(poll, again ? 0 : nextDelay());
	}
}

async function showOlder() {
	const from = state.next;
	try {
		const page = await api.jobs(PAGE, from, filter.query());
		if (from !== state.next)
			return; /* the list is another by now */
		state.older.push(...page.data);
		state.next = page.next;
		showList();
	} catch (error) {
		if (!(error instanceof ApiError))
			throw error;
		showBanner(error);
	}
}

/* -- routes ----------------------------------------------------------------------------------------- */

function currentJob() {
	return Number(/^#\/jobs\/(\d+)/.exec(location.hash)?.[1] ?? 0);
}

function route() {
	const id = currentJob();
	const gate = gateRoute(location.hash);
	setHidden($('overview'), Boolean(id || gate));
	setHidden($('detail'), !id);
	setHidden($('gates'), !gate);
	setAttr($('nav-jobs'), 'aria-current', gate ? null : 'page');
	setAttr($('nav-gates'), 'aria-current', gate ? 'page' : null);
	detail.close();
	gates.close();
	if (id) {
		detail.open(id);
	} else if (gate) {
		gates.open(gate);
	} else {
		readHash();
		writeHash();
	}
	state.drawnKey = '';
	poll();
}

function submitted(job) {
	state.ticked?.add(job.id); /* its result joins the others when it is there */
	state.jobs = [job, ...state.jobs.filter((j) => j.id !== job.id)];
	if (filter.query()) {
		filter.clear(); /* it is to be seen */
		filterChanged();
	}
	showList();
	showStatus();
	poll();
}

const makeFigure = (wish) => newFigure(figureKind, $('chart'),
	{ id: 'chart-title', wish, onRemove: (id) => tick(id, false), onMetric: writeHash, onTask: chooseTask });

const filter = new Filter($('filter'), filterChanged);
let figureKind = 'curve';
let figure = makeFigure(null);
const form = new SubmitForm($('submit'), submitted);
const detail = new Detail($('detail'), {
	models: () => state.models,
	tasks: () => state.tasks,
	onChanged: poll,
	onGone: () => {
		location.hash = '#/';
	},
});
const gates = new Gates($('gates'), { tasks: () => state.tasks, changed: poll });

$('jobs-more').addEventListener('click', showOlder);
$('jump').addEventListener('click', () => {
	$('submit-title').scrollIntoView();
	$('submit').querySelector('input').focus({ preventScroll: true });
});
window.addEventListener('hashchange', route);
document.addEventListener('visibilitychange', () => document.hidden || poll());
api.health().then((health) => {
	state.version = health?.version ?? '';
	showStatus();
}, () => {});
route();

/* Gates: #/gates lists them, and the baselines; #/gates/NAME is one with its branches, history and runs;
 * #/gates/NAME/runs/12 is a run's verdict. Each view fetches what it shows, and is made anew only where that
 * changed. */

import { ApiError, api, gatePath } from '/api.js';
import { baselineList } from '/baselines.js';
import { announce, confirmed, h, setText, words } from '/dom.js';
import { age, count, shortCommit, timeOf } from '/format.js';
import { History } from '/history.js';
import { isActive, newProgress, showProgress } from '/jobs.js';
import { ruleRows, ruleTable, ruleText, summaryText, termsText, verdictChip, withMetrics } from '/verdict.js';

const RUNS = 50; /* a page */

const href = (gate, run) => `#/gates/${encodeURIComponent(gate)}${run ? `/runs/${run}` : ''}`;
const isOpen = (run) => ['measuring', 'judging'].includes(run.state);

/* Says how long ago something was, and keeps saying it: see refreshAges. */
function ageNode(x) {
	const at = timeOf(x.at ?? x.finished_at ?? x.created_at);
	return h('span', { 'data-at': at }, age(at));
}

function refreshAges(root) {
	for (const node of root.querySelectorAll('[data-at]'))
		setText(node, age(Number(node.dataset.at)));
}

/* Words and nodes with dots between them; what is not there is left out. */
const dotted = (...parts) => parts.filter(Boolean).flatMap((part, i) => (i ? [' · ', part] : [part]));

/* A run's verdict, or how far it is. */
function runChip(run) {
	if (run.outcome)
		return verdictChip(run.outcome);
	return h('span', { class: `chip ${isOpen(run) ? 'running' : run.state}` }, run.state);
}

const baselineText = (b) => (b?.name ? `against ${b.name}${b.version ? ` v${b.version}` : ''}` : '');

/* A view: load() -> what is shown of it; make(data) -> nodes; data that did not change is not drawn again. */
class View {
	constructor(root, head) {
		this.root = root;
		this.body = h('div', { class: 'detail-body' });
		root.replaceChildren(...head, this.body);
		this.shown = '';
	}

	async poll() {
		const data = await this.load();
		if (this.gone)
			return;
		const key = JSON.stringify(data);
		if (key === this.shown) {
			refreshAges(this.root);
			return;
		}
		this.shown = key;
		this.show(data);
	}

	show(data) {
		this.body.replaceChildren(...this.make(data).filter(Boolean));
	}

	isBusy() {
		return false;
	}

	destroy() {
		this.gone = true;
	}
}

/* -- the list --------------------------------------------------------------------------------------- */

function branchLine(gate, b) {
	return h('li', {}, h('a', { href: href(gate, b.run) }, b.branch || 'no branch'), verdictChip(b.verdict),
		h('span', { class: 'quiet' }, dotted(shortCommit(b.commit), ageNode(b))));
}

/* The last judged run of each branch; main is the first. */
const branchesOf = (gate) => [...gate.branches].sort((a, b) => (b.branch === 'main') - (a.branch === 'main'));

const rulesText = (rules) => `${count(rules.length)} rule${rules.length === 1 ? '' : 's'}`;

class ListView extends View {
	constructor(root) {
		super(root, [h('h1', { tabindex: '-1' }, 'Gates')]);
	}

	async load() {
		const [gates, baselines] = await Promise.all([api.gates(), api.baselines()]);
		return { gates, baselines };
	}

	make({ gates, baselines }) {
		const row = (g) => h('li', { class: 'gate' },
			h('div', {}, h('a', { class: 'row-name', href: href(g.name) }, g.name),
				h('span', { class: 'quiet' }, ` version ${g.version} · ${rulesText(g.gate.rules)}`)),
			g.branches.length ? h('ul', { class: 'branches' }, branchesOf(g).map((b) => branchLine(g.name, b)))
				: h('p', { class: 'quiet' }, 'No verdict yet.'));
		const none = 'No gate yet. A gate is a file of rules; fathom gate --gate gates.json --model NAME posts it and ' +
			'runs it, and so does the API: POST /api/v1/gates.';
		return [
			h('section', { class: 'panel', 'aria-label': 'Gates' },
				gates.length ? h('ul', { class: 'gates' }, gates.map(row)) : h('p', { class: 'empty' }, none)),
			h('section', { class: 'panel', 'aria-labelledby': 'baselines-title' },
				h('h2', { id: 'baselines-title' }, 'Baselines'), baselineList(baselines)),
		];
	}
}

/* -- a gate ----------------------------------------------------------------------------------------- */

class GateView extends View {
	constructor(root, name, { tasks, changed }) {
		super(root, [h('p', {}, h('a', { class: 'back', href: '#/gates' }, '← All gates')),
			h('h1', { tabindex: '-1' }, name)]);
		this.name = name;
		this.tasks = tasks;
		this.changed = changed;
		this.branch = null; /* nobody chose */
		this.panels = ['branches', 'chart', 'runs', 'rules'].map((what) => h('section', { class: `panel ${what}` }));
		this.body.replaceChildren(...this.panels);
		this.history = new History(this.panels[1], { gate: name, id: 'history', onMetric: changed, onTask: (branch) => {
			this.branch = branch;
			changed();
		} });
		this.pages = 1;
	}

	destroy() {
		super.destroy();
		this.history.destroy();
	}

	isBusy() {
		return this.busy;
	}

	async loadRuns() {
		const all = { data: [], next: null };
		for (let page = 0; page < this.pages && (page === 0 || all.next); page++) {
			const { data, next } = await api.runs(this.name, { limit: RUNS, after: all.next ?? 0 });
			all.data.push(...data);
			all.next = next;
		}
		return all;
	}

	async load() {
		const [gate, runs] = await Promise.all([api.gate(this.name), this.loadRuns()]);
		const rules = withMetrics(gate.gate.rules, this.tasks());
		const branches = branchesOf(gate);
		const named = branches.map((b) => b.branch).filter(Boolean);
		const branch = this.branch ?? (named.includes('main') ? 'main' : named[0]) ?? '';
		const charted = rules.filter((r) => r.type !== 'no_truncation');
		const rule = charted.find((r) => r.name === this.history.wish) ?? charted[0];
		const history = rule ? await api.history(this.name, rule.name, branch) : { points: [], change_points: [] };
		return { gate, rules, charted, runs, branches, named, branch, history };
	}

	show({ gate, rules, charted, runs, branches, named, branch, history }) {
		const [branchPanel, , runPanel, rulePanel] = this.panels;
		this.busy = runs.data.some(isOpen);
		branchPanel.replaceChildren(h('h2', {}, 'Branches'),
			branches.length ? h('ul', { class: 'branches' }, branches.map((b) => this.branchRow(b)))
				: h('p', { class: 'empty' }, 'No verdict yet.'));
		this.history.setTasks(named, branch);
		this.history.showHistory(charted, history.points ?? [], history.change_points ?? [],
			h('div', {}, h('strong', {}, 'No history yet'), h('p', {}, 'What the runs measured is drawn here, run after run.')));
		const more = h('button', { class: 'button', type: 'button', onclick: () => this.showMore() }, 'Show older runs');
		runPanel.replaceChildren(h('header', { class: 'panel-head' }, h('h2', {}, 'Runs'),
			h('p', { class: 'quiet' }, `${count(runs.data.length)}${runs.next ? '+' : ''}`)),
			h('ul', { class: 'runs' }, runs.data.map((run) => this.runRow(run))), runs.next ? more : '');
		const file = { class: 'button small', href: gatePath(this.name), download: `${this.name}.json` };
		rulePanel.replaceChildren(h('header', { class: 'panel-head' }, h('h2', {}, `Rules, version ${gate.version}`),
			h('div', { class: 'tools' }, h('a', file, 'JSON'))),
			h('ul', { class: 'rules' }, rules.map((r) => h('li', { class: 'rule' },
				h('div', { class: 'rule-name' }, h('strong', {}, r.name), h('span', {}, ruleText(r))),
				h('div', { class: 'rule-value' }, termsText(r))))));
	}

	showMore() {
		this.pages++;
		this.changed();
	}

	branchRow(b) {
		const path = gatePath(this.name, `/badge.svg${b.branch ? `?branch=${encodeURIComponent(b.branch)}` : ''}`);
		const line = branchLine(this.name, b);
		line.append(h('a', { class: 'badge', href: path, title: 'The badge of this branch' },
			h('img', { src: path, alt: `badge: ${b.verdict}`, height: '20' })));
		return line;
	}

	runRow(run) {
		const what = dotted(shortCommit(run.tags?.commit), run.tags?.branch, baselineText(run.baseline));
		return h('li', { class: 'run' }, h('span', {}, runChip(run)),
			h('div', {}, h('a', { class: 'row-name', href: href(this.name, run.id) }, run.model),
				h('span', { class: 'quiet' }, ` #${run.id}`)),
			h('span', { class: 'quiet' }, what), h('span', { class: 'quiet' }, ageNode(run)));
	}
}

/* -- a run ------------------------------------------------------------------------------------------ */

class RunView extends View {
	constructor(root, gate, id, { tasks, changed }) {
		const heading = h('h1', { tabindex: '-1' }, `Run ${id}`);
		const sub = h('p', { class: 'quiet' });
		const chip = h('div', { class: 'big-chip' });
		const tools = h('div', { class: 'buttons' });
		super(root, [h('p', {}, h('a', { class: 'back', href: href(gate) }, `← ${gate}`)),
			h('header', { class: 'detail-head' }, h('div', {}, heading, sub), chip, tools)]);
		const cancel = h('button', { class: 'button', type: 'button', onclick: () => this.askCancel() }, 'Cancel run');
		Object.assign(this, { heading, sub, chip, tools, cancel, gate, id, tasks, changed, busy: true });
	}

	isBusy() {
		return this.busy;
	}

	/* The run; beside it its jobs that are under way, whose progress is shown. */
	async load() {
		const run = await api.run(this.gate, this.id);
		if (run.verdict?.rules)
			run.verdict.rules = withMetrics(run.verdict.rules, this.tasks());
		const active = run.jobs.filter(isActive);
		const jobs = await Promise.all(active.map(({ id }) => api.job(id)));
		return { run, jobs };
	}

	make({ run, jobs }) {
		const { verdict } = run;
		if (this.busy && this.seen && !isOpen(run))
			announce(`Run ${run.id}: ${run.outcome ?? run.state}`);
		this.seen = true;
		this.busy = isOpen(run);
		this.heading.textContent = `${run.model} in ${this.gate}`;
		this.sub.replaceChildren(...dotted(`Run ${run.id}`, run.tags?.branch, shortCommit(run.tags?.commit),
			baselineText(run.baseline), ageNode(run)));
		this.chip.replaceChildren(runChip(run));
		const files = [['JSON', run.links.verdict], ['JUnit', run.links.junit], ['Markdown', run.links.markdown]];
		this.tools.replaceChildren(...files.filter(([, path]) => path).map(([name, path]) =>
			h('a', { class: 'button small', href: path, download: `run-${run.id}.${path.split('.').at(-1)}` }, name)));
		if (isOpen(run))
			this.tools.append(this.cancel);
		return [this.errorPart(run), this.refusedPart(verdict), this.notesPart(verdict), this.rulesPart(verdict),
			this.jobsPart(run, jobs)];
	}

	async askCancel() {
		const consequence = 'Its measurements stop, and it gets no verdict.';
		if (!await confirmed(`Cancel run ${this.id}?`, consequence, 'Cancel the run'))
			return;
		try {
			await api.cancelRun(this.gate, this.id);
		} catch (error) {
			if (!(error instanceof ApiError))
				throw error;
			this.body.prepend(h('div', { class: 'form-alert', role: 'alert' }, error.message));
		}
		this.changed();
	}

	errorPart(run) {
		if (run.state === 'cancelled')
			return h('p', { class: 'quiet' }, 'It was cancelled: there is no verdict.');
		return run.error && h('div', { class: 'form-alert' }, h('strong', {}, 'It could not be judged: '), words(run.error));
	}

	refusedPart(verdict) {
		const all = verdict?.refused ?? [];
		return all.length > 0 && h('div', { class: 'form-alert' }, h('strong', {}, 'Not compared: '),
			h('ul', {}, all.map((why) => h('li', {}, words(why)))));
	}

	notesPart(verdict) {
		const change = verdict?.engine_change &&
			'Measured on another engine (device or number format) than the baseline: the comparison was allowed.';
		const all = [change, ...(verdict?.warnings ?? [])].filter(Boolean);
		return all.length > 0 && h('ul', { class: 'notes' }, all.map((w) => h('li', {}, words(w))));
	}

	rulesPart(verdict) {
		if (!verdict?.rules)
			return null;
		return h('section', { class: 'panel', 'aria-labelledby': 'verdict-title' },
			h('header', { class: 'panel-head' }, h('h2', { id: 'verdict-title' }, 'Verdict'),
				h('p', { class: 'quiet' }, summaryText(verdict.rules))),
			ruleRows(verdict.rules),
			h('details', { class: 'values' }, h('summary', {}, 'Values'), ruleTable(verdict.rules)));
	}

	jobsPart(run, active) {
		const progress = (job) => {
			const node = newProgress();
			showProgress(node, job);
			return node;
		};
		const line = (job) => h('li', {}, h('a', { href: `#/jobs/${job.id}` }, `job ${job.id}`), h('span', {}, job.measure),
			h('span', { class: `chip ${job.state ?? ''}` }, job.state ?? 'deleted'),
			job.cached_from > 0 && h('span', { class: 'quiet' }, `taken from job ${job.cached_from}, which measured the same`),
			active.filter(({ id }) => id === job.id).map(progress));
		const hook = run.webhook;
		const told = hook && ['Webhook', hook.state.replace('_', ' '), hook.tries > 1 && `${hook.tries} tries`, hook.error];
		return h('section', { class: 'panel', 'aria-labelledby': 'jobs-of' }, h('h2', { id: 'jobs-of' }, 'Measurements'),
			h('ul', { class: 'measured' }, run.jobs.map(line)),
			told && h('p', { class: 'quiet' }, told.filter(Boolean).join(' · ')));
	}
}

/* -- the page --------------------------------------------------------------------------------------- */

/* #/gates/NAME/runs/12 -> {gate, run}, null where the address is none of gates. */
export function gateRoute(hash) {
	const found = /^#\/gates(?:\/([^/?]+)(?:\/runs\/(\d+))?)?/.exec(hash);
	return found && { gate: found[1] ? decodeURIComponent(found[1]) : null, run: Number(found[2] ?? 0) };
}

export class Gates {
	/* root: an element to fill. page: tasks(), a Map of descriptions; changed(): something else is to be shown, poll now. */
	constructor(root, page) {
		this.root = root;
		this.page = page;
		this.view = null;
	}

	open({ gate, run }) {
		this.close();
		if (run)
			this.view = new RunView(this.root, gate, run, this.page);
		else
			this.view = gate ? new GateView(this.root, gate, this.page) : new ListView(this.root);
		this.root.querySelector('h1').focus({ preventScroll: true });
		window.scrollTo(0, 0);
	}

	close() {
		this.view?.destroy();
		this.view = null;
	}

	isBusy() {
		return Boolean(this.view?.isBusy());
	}

	/* Fetches what is shown; throws an ApiError. */
	async poll() {
		const { view } = this;
		try {
			await view?.poll();
		} catch (error) {
			if (error.status !== 404 || view !== this.view)
				throw error;
			view.body.replaceChildren(h('p', { class: 'empty' }, error.message));
		}
	}
}

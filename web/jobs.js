/* The list of jobs: one row a job, updated in place; a tick box puts its result on the chart. Also the
 * state chip and the progress line that the job's own page shares. */

import { h, reconcile, setAttr, setHidden, setText } from '/dom.js';
import { isDrawable } from '/figures.js';
import { age, compact, count, duration, headlineText, protocol, scheme, subsetText, timeOf } from '/format.js';
import { slotOf } from '/slots.js';

export const isActive = (job) => ['queued', 'running', 'cancelling'].includes(job.state);

/* -- one progress line ------------------------------------------------------------------------------ */

export function newProgress() {
	const bar = h('progress', { max: 1, 'aria-label': 'Progress' });
	const text = h('span', { class: 'progress-text' });
	return h('div', { class: 'progress' }, bar, text);
}

function progressText(job) {
	const { done, total, unit, tokens_per_s: rate, eta_s: eta, mfu } = job.progress;
	if (job.state === 'queued')
		return job.waiting ? `waiting: ${job.waiting}` : 'waiting for a worker';
	if (!total)
		return 'preparing: reading and tokenizing';
	return [
		`${Math.floor((100 * done) / total)} %`, `${compact(done)} of ${compact(total)} ${unit}`,
		rate > 0 && `${compact(rate)} ${unit}/s`, mfu > 0 && `${Math.round(100 * mfu)} % of peak`,
		eta > 0 && `${duration(Math.max(1, Math.round(eta)))} left`,
	].filter(Boolean).join(' · ');
}

export function showProgress(node, job) {
	const [bar, text] = node.children;
	setHidden(node, !isActive(job));
	if (!isActive(job))
		return;
	const { done, total } = job.progress;
	if (job.state === 'queued' || total > 0)
		setAttr(bar, 'value', total > 0 ? done / total : 0);
	else
		bar.removeAttribute('value');
	setText(text, progressText(job));
}

export const newChip = () => h('span', { class: 'chip' });

export function showChip(node, job) {
	setAttr(node, 'class', `chip ${job.state}`);
	setText(node, job.state);
}

/* -- rows ------------------------------------------------------------------------------------------- */

export function titleOf(job, models) {
	const model = models.get(job.model);
	const override = job.engine?.position;
	const asked = override ? { ...model?.position, ...override } : model?.position;
	const position = job.result?.model?.position ?? job.plan?.model?.position ?? asked;
	return { model: job.model, scheme: scheme(position) };
}

function whenText(job) {
	const [created, started, finished] = [job.created_at, job.started_at, job.finished_at].map(timeOf);
	if (finished && started)
		return `${age(finished)}, took ${duration((finished - started) / 1000)}`;
	return age(finished || started || created);
}

function outcomeText(job) {
	if (job.state === 'failed')
		return job.error?.message ?? 'failed';
	return job.warnings?.length ? `${job.warnings.length} warning${job.warnings.length > 1 ? 's' : ''}` : '';
}

function newRow(job, onTick) {
	const box = h('input', { type: 'checkbox', onchange: () => onTick(job.id, box.checked) });
	const parts = {
		tick: h('label', { class: 'tick' }, box, h('span', { class: 'unseen' }, `Draw job ${job.id}`)),
		name: h('a', { class: 'row-name', href: `#/jobs/${job.id}` }),
		scheme: h('span', { class: 'row-scheme' }),
		what: h('span', { class: 'row-what' }),
		score: h('span', { class: 'row-score' }, h('strong'), h('span')),
		chip: newChip(),
		when: h('span', { class: 'row-when' }),
		progress: newProgress(),
		outcome: h('p', { class: 'row-outcome' }),
	};
	const row = h('li', { class: 'job' }, parts.tick,
		h('div', { class: 'row-title' }, parts.name, parts.scheme), parts.what, parts.score,
		h('div', { class: 'row-side' }, parts.chip, parts.when), parts.progress, parts.outcome);
	row.parts = { ...parts, box };
	return row;
}

function showRow(row, job, { models, tasks, drawn }) {
	const { box, tick, name, scheme: schemeNode, what, score, chip, when, progress, outcome } = row.parts;
	const title = titleOf(job, models);
	const on = drawn.has(job.id);
	box.disabled = !isDrawable(job, tasks);
	box.checked = on;
	setAttr(tick, 'class', on ? `tick slot-${slotOf(job.id)}` : 'tick');
	setAttr(tick, 'title', box.disabled ? 'Nothing to draw: no result with a number' : 'Draw this result');
	setText(name, title.model);
	setText(schemeNode, [title.scheme, `#${job.id}`, job.name].filter(Boolean).join(' · '));
	const how = protocol(job.params, tasks.get(job.task));
	setText(what, [job.task, how, job.dataset, subsetText(job.params)].filter(Boolean).join(' · '));
	headlineText(job.headline).forEach((words, i) => setText(score.children[i], words));
	setHidden(score, !job.headline);
	showChip(chip, job);
	setText(when, whenText(job));
	showProgress(progress, job);
	const words = outcomeText(job);
	setText(outcome, words);
	setAttr(outcome, 'class', `row-outcome ${job.state}`);
	setHidden(outcome, !words);
}

/* ul: the list element. context: { models, tasks: Maps name -> description, drawn: Set of ids, onTick(id,
 * on) }. */
export function showJobs(ul, jobs, context) {
	reconcile(ul, jobs, (j) => j.id, (j) => newRow(j, context.onTick), (row, j) => showRow(row, j, context));
}

export function countText(jobs, more) {
	const active = jobs.filter(isActive).length;
	return jobs.length ? `${count(jobs.length)}${more ? '+' : ''}${active ? `, ${active} active` : ''}` : '';
}

/* Baselines: the list of them with their versions, and the dialog that pins a job's result as one. */

import { ApiError, api, baselinePath } from '/api.js';
import { h, setHidden, setText } from '/dom.js';
import { age, dateTime, timeOf } from '/format.js';

/* -- the list --------------------------------------------------------------------------------------- */

function resultLine(result) {
	const text = [result.model, result.task, result.dataset].filter(Boolean).join(' · ');
	const from = result.job ? h('a', { href: `#/jobs/${result.job}` }, `job ${result.job}`) : 'imported';
	return h('li', {}, from, ` ${text}`);
}

async function fillVersions(node, name) {
	try {
		const { history } = await api.baseline(name);
		const file = (v) => ({ href: baselinePath(name, `/evidence?version=${v}`), download: `${name}-${v}.json` });
		node.replaceChildren(...history.map(({ version, ...v }) => h('li', {}, `version ${version}`,
			h('span', { class: 'quiet' }, ` ${dateTime(timeOf(v.created_at))} · `), h('a', file(version), 'JSON'))));
	} catch (error) {
		if (!(error instanceof ApiError))
			throw error;
		node.replaceChildren(h('li', { class: 'quiet' }, error.message));
	}
}

function row(b) {
	const versions = h('ul', { class: 'versions' });
	const more = h('details', { ontoggle: () => more.open && fillVersions(versions, b.name) },
		h('summary', {}, b.version > 1 ? `${b.version} versions` : '1 version'), versions);
	return h('li', { class: 'baseline' }, h('strong', {}, b.name),
		h('span', { class: 'quiet' }, `version ${b.version}, ${age(timeOf(b.created_at))}`),
		h('ul', { class: 'results' }, (b.results ?? []).map(resultLine)), more);
}

export function baselineList(baselines) {
	if (!baselines.length)
		return h('p', { class: 'empty' }, 'No baseline yet. The page of a finished job has a button that pins its result.');
	return h('ul', { class: 'baselines' }, baselines.map(row));
}

/* -- pinning ---------------------------------------------------------------------------------------- */

/* Asks for a name and pins the job's result under it: a new baseline, or a new version of one. Resolves to the
 * baseline, or to null when nothing was pinned. */
export async function pinDialog(job) {
	const known = await api.baselines();
	const first = job.tags?.branch ?? known[0]?.name ?? 'main';
	const input = h('input', { type: 'text', id: 'pin-name', list: 'pin-known', value: first, autocomplete: 'off',
		spellcheck: 'false', required: true });
	const hint = h('p', { class: 'help' });
	const alert = h('p', { class: 'form-alert', role: 'alert', hidden: true });
	const inUse = () => known.find((b) => b.name === input.value.trim());
	const say = () => {
		const there = inUse();
		setText(hint, there ? `Version ${there.version} stays in its history; this becomes the next.` : 'A new baseline.');
	};
	input.addEventListener('input', say);
	say();
	const no = h('button', { class: 'button', type: 'button', onclick: () => dialog.close() }, 'Do not pin');
	const yes = h('button', { class: 'button primary', type: 'submit' }, 'Pin');
	const form = h('form', { method: 'dialog', class: 'pin' },
		h('h2', { id: 'pin-title' }, `Pin job ${job.id} as a baseline`),
		h('label', { for: 'pin-name' }, 'Name'), input,
		h('datalist', { id: 'pin-known' }, known.map((b) => h('option', { value: b.name }))), hint, alert,
		h('div', { class: 'buttons' }, no, yes));
	const dialog = h('dialog', { class: 'confirm', 'aria-labelledby': 'pin-title' }, form);
	document.body.append(dialog);
	return new Promise((resolve) => {
		let made = null;
		form.addEventListener('submit', async (event) => {
			event.preventDefault();
			yes.disabled = true;
			try {
				made = await api.pin(input.value.trim(), [job.id], inUse()?.etag);
				dialog.close();
			} catch (error) {
				if (!(error instanceof ApiError))
					throw error;
				setText(alert, error.message);
				setHidden(alert, false);
			} finally {
				yes.disabled = false;
			}
		});
		dialog.addEventListener('close', () => {
			dialog.remove();
			resolve(made);
		});
		dialog.showModal();
		input.select();
	});
}

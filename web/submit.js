/* The form of a new evaluation, built from what the API says: models, datasets, tasks and their tables
 * of parameters. A job is submitted a ticked model. The server judges every value; its message is shown
 * at the field that its JSON pointer names. Here only text that is no number at all is refused. */

import { ApiError, api, newKey } from '/api.js';
import { announce, h, setAttr, setHidden, setText, words } from '/dom.js';
import { compact, count, labelOf, scheme, sentence } from '/format.js';

const N_PLAIN = 3; /* parameters that are shown at once; the rest stand under "More parameters" */

const nameOf = (x) => x.name;

/* -- fields ----------------------------------------------------------------------------------------- */

/* A field is { pointer, node, control, error, read() }: read gives the value, undefined when left to
 * the server's default, and throws an Error with words for the field. */
function newField(pointer, label, control, { help = '', read }) {
	const id = `f${pointer.replaceAll('/', '-')}`;
	const error = h('p', { class: 'field-error', id: `${id}-error`, hidden: true });
	control.id = id;
	control.setAttribute('aria-describedby', `${id}-help ${id}-error`);
	const node = h('div', { class: 'field' }, h('label', { for: id }, label), control, error,
		h('p', { class: 'help', id: `${id}-help` }, words(help)));
	return { pointer, node, control, error, read };
}

function readInt(text) {
	if (!/^[+-]?\d+$/.test(text))
		throw new Error(`'${text}' is not a whole number`);
	return Number(text);
}

const show = (value) => (Array.isArray(value) ? value.join(', ') : String(value ?? ''));

function paramControl(param) {
	const fallback = param.default;
	if (param.type === 'boolean') {
		const box = h('input', { type: 'checkbox' });
		box.checked = fallback === true;
		return [box, () => box.checked];
	}
	if (param.type === 'choice') {
		const select = h('select', {}, param.choices.map((c) => h('option', { value: c }, c)));
		select.value = show(fallback);
		return [select, () => select.value];
	}
	const placeholder = (fallback ?? null) === null ? 'not set' : null;
	const attributes = { autocomplete: 'off', spellcheck: 'false', placeholder,
		list: param.type === 'dataset' ? 'dataset-names' : null };
	const input = param.type === 'integer list'
		? h('textarea', { rows: 2, ...attributes })
		: h('input', { type: 'text', inputmode: param.type === 'integer' ? 'numeric' : null, ...attributes });
	input.value = show(fallback);
	const typed = () => input.value.trim();
	if (param.type === 'integer')
		return [input, () => (typed() ? readInt(typed()) : undefined)];
	if (param.type === 'integer list')
		return [input, () => (typed() ? typed().split(/[\s,;]+/).filter(Boolean).map(readInt) : undefined)];
	return [input, () => typed() || undefined];
}

function rangeText(param) {
	const { min, max } = param;
	if (typeof min !== 'number')
		return '';
	return max > 1e9 ? `; at least ${count(min)}` : `; ${count(min)} to ${count(max)}`;
}

function paramField(param) {
	const [control, read] = paramControl(param);
	return newField(`/params/${param.name}`, labelOf(param.name), control,
		{ help: sentence(param.help ?? '').replace(/\bnull:/, 'empty:') + rangeText(param), read });
}

/* Whether a dataset's files are of a kind that the task reads. */
function fits(dataset, task) {
	return !task?.formats?.length || !dataset.format || task.formats.includes(dataset.format);
}

/* A model in a line, or what is wrong with it. */
function facts(model) {
	if (model.error)
		return model.error.message.replace(`model '${model.name}': `, '');
	const { position, n_params: size, n_ctx: context } = model;
	return [scheme(position), size && `${compact(size)} parameters`, context && `context ${context}`]
		.filter(Boolean).join(' · ');
}

/* -- the form --------------------------------------------------------------------------------------- */

export class SubmitForm {
	/* form: the element to fill. onSubmitted(job): called for each job that the server took. */
	constructor(form, onSubmitted) {
		this.form = form;
		this.onSubmitted = onSubmitted;
		this.params = [];
		this.models = [];
		this.datasets = [];
		this.tasks = [];
		this.keys = new Map(); /* body as sent -> its key: pressing again after a lost answer is the same job */
		this.build();
		form.addEventListener('submit', (event) => {
			event.preventDefault();
			this.submit();
		});
	}

	build() {
		this.alert = h('div', { class: 'form-alert', role: 'alert', hidden: true });
		this.modelList = h('div', { class: 'models', id: 'f-model', role: 'group', tabindex: '-1',
			'aria-labelledby': 'models-legend', 'aria-describedby': 'f-model-error' });
		this.modelError = h('p', { class: 'field-error', id: 'f-model-error', hidden: true });
		this.modelField = { pointer: '/model', node: h('fieldset', { class: 'field' },
			h('legend', { id: 'models-legend' }, 'Models'), this.modelList, this.modelError),
		control: this.modelList, error: this.modelError };
		this.dataset = this.selectField('/dataset', 'Dataset');
		this.task = this.selectField('/task', 'Task');
		this.dataset.control.addEventListener('change', () => {
			this.datasetChosen = true;
			this.showDataset();
		});
		this.task.control.addEventListener('change', () => this.showTask());
		this.plain = h('div', { class: 'grid' });
		this.rest = h('div', { class: 'grid' });
		this.more = h('details', {}, h('summary', {}, 'More parameters'), this.rest);
		this.button = h('button', { class: 'button primary', id: 'submit-button' }, 'Evaluate');
		this.about = h('details', { class: 'about' }, h('summary', {}, 'What it measures'), h('dl', { class: 'metrics' }));
		this.names = h('datalist', { id: 'dataset-names' }); /* for parameters that name a dataset, too */
		this.form.replaceChildren(this.names, this.modelField.node, this.task.node, this.about, this.dataset.node, this.plain,
			this.more, this.buildEngine(), this.alert, this.button);
		this.form.addEventListener('change', () => this.showButton());
	}

	selectField(pointer, label) {
		const select = h('select', {});
		return newField(pointer, label, select, { read: () => select.value || undefined });
	}

	buildEngine() {
		const option = (value, text) => h('option', { value }, text);
		const select = (...options) => h('select', {}, options);
		const plain = (pointer, label, control, help) =>
			newField(pointer, label, control, { help, read: () => control.value.trim() || undefined });
		const name = h('input', { type: 'text', autocomplete: 'off', maxlength: 200 });
		this.name = plain('/name', 'Name', name, 'Yours to choose');
		this.device = plain('/engine/device', 'Device', select(option('', 'any')));
		this.dtype = plain('/engine/dtype', 'Dtype',
			select(option('', 'auto'), option('f32', 'f32'), option('bf16', 'bf16'), option('f16', 'f16')));
		this.scaling = plain('/engine/position', 'Position scaling',
			select(option('', 'as trained'), option('none', 'none'), option('linear', 'linear'),
				option('yarn', 'YaRN')),
			'Overrides the checkpoint, without training');
		const factor = h('input', { type: 'text', inputmode: 'decimal', autocomplete: 'off', value: '4' });
		this.factor = newField('/engine/position/factor', 'Scaling factor', factor, { read: () => {
			if (!(Number(factor.value) > 0))
				throw new Error(`'${factor.value}' is not a positive number`);
			return Number(factor.value);
		} });
		setHidden(this.factor.node, true);
		this.scaling.control.addEventListener('change', () =>
			setHidden(this.factor.node, !['linear', 'yarn'].includes(this.scaling.control.value)));
		this.engineFields = [this.name, this.device, this.dtype, this.scaling, this.factor];
		return h('details', {}, h('summary', {}, 'Name, device, position scaling'),
			h('div', { class: 'grid' }, this.engineFields.map((f) => f.node)));
	}

	/* Lists from the API, as they come: what was chosen stays chosen. */
	setModels(models) {
		this.models = models;
		this.showModels();
		this.showButton();
	}

	setDatasets(datasets) {
		this.datasets = datasets;
		this.names.replaceChildren(...datasets.map(({ name }) => h('option', { value: name })));
		this.fillDatasets();
	}

	currentTask() {
		return this.tasks.find((t) => t.name === this.task.control.value);
	}

	/* Those whose files the task can read first; the rest stand apart, since a name may mislead. Until
	 * somebody chose one, one is suggested. */
	fillDatasets() {
		const task = this.currentTask();
		const good = this.datasets.filter((d) => fits(d, task)).map(nameOf);
		const rest = this.datasets.filter((d) => !fits(d, task)).map(nameOf);
		const own = task?.generated_by ? [''] : [];
		this.fill(this.dataset.control, [...own, ...good], 'No datasets', (name) => name || `none: made from ${labelOf(task?.generated_by ?? '')}`,
			{ 'Files of another kind': rest });
		if (!this.datasetChosen && task)
			this.dataset.control.value = this.suggestion(task, good) ?? own[0] ?? good[0] ?? rest[0] ?? '';
		this.showDataset();
	}

	/* Of the names that fit, the task's own data, else some that is not known to be another task's. */
	suggestion(task, names) {
		const known = (name) => this.datasets.find((d) => d.name === name)?.known_as ?? null;
		return names.find((name) => known(name) === task.name) ?? names.find((name) => name === task.name) ??
			(task.generated_by ? undefined : names.find((name) => known(name) === null));
	}

	showDataset() {
		const d = this.datasets.find((x) => x.name === this.dataset.control.value);
		const size = d?.bytes ? compact(d.bytes).replace(/[a-zA-Z]?$/, ' $&B') : '';
		const have = [d?.official && `the official ${d.known_as}`, d?.official === false && `not the official ${d.known_as}`,
			d?.n_items && `${count(d.n_items)} items`, d?.files > 1 && `${count(d.files)} files`, size];
		const wanted = this.currentTask()?.dataset;
		const none = !this.datasets.length && 'Start the server with `--datasets DIR`';
		this.dataset.node.querySelector('.help').replaceChildren(
			...words([none, sentence(have.filter(Boolean).join(', ')), wanted && `Wanted: ${wanted}`].filter(Boolean).join('. ')));
	}

	setTasks(tasks) {
		this.tasks = tasks;
		this.fill(this.task.control, tasks.map(nameOf), 'No tasks');
		if (this.shownTask !== this.task.control.value)
			this.showTask();
	}

	setWorkers(workers) {
		const devices = workers.map((w) => w.device);
		this.fill(this.device.control, ['', ...new Set(devices.filter(Boolean))], '', (d) => d || 'any');
	}

	/* groups: { label: more values } that stand below, apart. */
	fill(select, values, none, text = (v) => v, groups = {}) {
		const old = select.value;
		const more = Object.entries(groups).filter(([, names]) => names.length);
		const key = JSON.stringify([values, more]);
		if (key === select.dataset.values)
			return;
		select.dataset.values = key;
		const option = (v) => h('option', { value: v }, text(v));
		const below = more.map(([label, names]) => h('optgroup', { label }, names.map(option)));
		const all = [...values, ...more.flatMap(([, names]) => names)];
		select.replaceChildren(...(all.length ? [...values.map(option), ...below] : [h('option', { value: '' }, none)]));
		if (all.includes(old))
			select.value = old;
		select.disabled = all.length === 0;
	}

	showModels() {
		const ticked = new Set(this.chosen());
		const text = JSON.stringify(this.models.map((m) => [m.name, facts(m)]));
		if (text === this.modelList.dataset.shown)
			return;
		this.modelList.dataset.shown = text;
		const sorted = [...this.models].sort((a, b) => Boolean(a.error) - Boolean(b.error));
		const row = (m) => {
			const box = h('input', { type: 'checkbox', name: 'model', value: m.name, disabled: Boolean(m.error) });
			box.checked = ticked.has(m.name);
			return h('label', { class: 'model' }, box, h('span', {}, h('span', { class: 'model-name' }, m.name),
				h('span', { class: m.error ? 'quiet broken' : 'quiet', title: m.error && facts(m) }, facts(m))));
		};
		const none = h('p', { class: 'empty' }, 'No models found. Start the server with ', h('code', {}, '--models DIR'),
			': a folder that holds checkpoints, each a folder with config.json.');
		this.modelList.replaceChildren(...(sorted.length ? sorted.map(row) : [none]));
	}

	chosen() {
		return [...this.modelList.querySelectorAll('input:checked')].map((box) => box.value);
	}

	showTask() {
		this.shownTask = this.task.control.value;
		const task = this.tasks.find((t) => t.name === this.shownTask);
		this.params = (task?.params ?? []).map(paramField);
		this.plain.replaceChildren(...this.params.slice(0, N_PLAIN).map((f) => f.node));
		this.rest.replaceChildren(...this.params.slice(N_PLAIN).map((f) => f.node));
		setHidden(this.more, this.params.length <= N_PLAIN);
		setText(this.task.node.querySelector('.help'), sentence(task?.summary ?? ''));
		const metrics = task?.metrics ?? [];
		this.about.lastChild.replaceChildren(...metrics.map((m) =>
			h('div', {}, h('dt', {}, m.name), h('dd', {}, words(`${sentence(m.help)} (${m.unit})`)))));
		setHidden(this.about, metrics.length === 0);
		this.datasetChosen = false;
		this.fillDatasets();
	}

	showButton() {
		const n = this.chosen().length;
		setText(this.button, n > 1 ? `Evaluate ${n} models` : 'Evaluate');
	}

	/* -- errors -- */

	fields() {
		return [this.modelField, this.task, this.dataset, ...this.params, ...this.engineFields];
	}

	clearErrors() {
		setHidden(this.alert, true);
		for (const field of this.fields()) {
			setHidden(field.error, true);
			field.control.removeAttribute('aria-invalid');
		}
	}

	/* Marks the field with the longest pointer that the given one starts with; false when there is
	 * none. */
	mark(pointer, detail) {
		const under = (f) => pointer === f.pointer || pointer.startsWith(`${f.pointer}/`);
		const field = this.fields().filter(under).sort((a, b) => b.pointer.length - a.pointer.length)[0];
		if (!field)
			return false;
		setText(field.error, detail);
		setHidden(field.error, false);
		setAttr(field.control, 'aria-invalid', 'true');
		const details = field.node.closest('details');
		if (details)
			details.open = true;
		if (!this.marked)
			field.control.focus();
		this.marked = true;
		return true;
	}

	showError(error, model) {
		this.marked = false;
		for (const f of error.fields ?? [])
			this.mark(f.pointer, f.detail);
		setText(this.alert, model ? `${model}: ${error.message}` : error.message);
		setHidden(this.alert, false);
	}

	/* -- submitting -- */

	/* The job without its model; null when a field could not be read, which is then marked. */
	read() {
		let good = true;
		this.marked = false;
		const value = (field) => {
			try {
				return field.read();
			} catch (e) {
				good = this.mark(field.pointer, e.message) && false;
				return undefined;
			}
		};
		const params = Object.fromEntries(this.params.map((f) => [f.pointer.split('/').pop(), value(f)]));
		const type = value(this.scaling);
		const factor = type && type !== 'none' ? value(this.factor) : undefined;
		const position = type ? { type, factor } : undefined;
		const engine = { device: value(this.device), dtype: value(this.dtype), position };
		const job = { task: value(this.task), dataset: value(this.dataset), params, name: value(this.name) };
		if (Object.values(engine).some((v) => v !== undefined))
			job.engine = engine;
		return good ? job : null;
	}

	async submit() {
		this.clearErrors();
		const models = this.chosen();
		const job = this.read();
		if (!models.length)
			this.mark('/model', 'Tick at least one model');
		if (!job || !models.length || this.button.disabled)
			return;
		this.button.disabled = true;
		try {
			for (const model of models)
				await this.submitOne({ model, ...job });
			announce(models.length > 1 ? `${models.length} jobs submitted` : 'Job submitted');
		} finally {
			this.button.disabled = false;
			this.showButton();
		}
	}

	async submitOne(job) {
		const body = JSON.stringify(job);
		if (!this.keys.has(body))
			this.keys.set(body, newKey());
		try {
			this.onSubmitted(await api.submit(job, this.keys.get(body)));
			this.keys.delete(body);
		} catch (error) {
			if (!(error instanceof ApiError))
				throw error;
			this.showError(error, job.model);
		}
	}
}

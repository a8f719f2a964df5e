/* Which figure a task's result has: the one place that knows. A figure is a class with
 * constructor(root, { id, ... }), show(series, empty) and destroy(); see figure.js. */

import { Bars } from '/bars.js';
import { Curve } from '/curve.js';
import { FrequencyMap } from '/frequencies.js';

/* By the `figure` of a task's description. `compares`: several jobs of the task share one. */
const FIGURES = {
	curve: { make: Curve, compares: true },
	bars: { make: Bars, compares: true },
	map: { make: FrequencyMap, compares: false },
};

/* tasks: Map name -> description; before it is there, parameters tell. */
export const figureOf = (job, tasks) =>
	tasks.get(job.task)?.figure ??
	(job.links?.frequencies ? 'map' : Array.isArray(job.params?.lengths) ? 'curve' : 'bars');

/* A new figure in `root`, or null where this page knows none of that kind. */
export function newFigure(kind, root, options) {
	return FIGURES[kind] ? new FIGURES[kind].make(root, options) : null;
}

/* Whether a job can stand in a chart beside others: it has a number to show. */
export const isDrawable = (job, tasks) =>
	job.state === 'succeeded' && Boolean(job.headline) && Boolean(FIGURES[figureOf(job, tasks)]?.compares);

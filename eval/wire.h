/* The wire between `fathom serve` and `fathom worker`: one JSON object a line, both ways, at most WIRE_MAX_LINE bytes.
 *
 * Commands (server -> worker). `job` and `request` are integers >= 0 that the worker echoes. Unit ranges are half-open.
 *   {"cmd":"describe","model":"rope-29m"}
 *   {"cmd":"plan","job":7,"model":"rope-29m","task":"pg19","dataset":"books","params":{"lengths":[1024],...},
 *    "engine":{"dtype":"auto","position":null},      dataset "generated" and such params: the task makes it
 *    "pins":null}            or the pins of the job's first plan:
 *            {"model":"sha256:..","tokenizer":"sha256:..","dataset":"sha256:..","signature":"fathom 0.1.0; ..."}
 *   {"cmd":"run","job":7,"units":[[0,8],[12,13]]}      after planned; in this order
 *   {"cmd":"cancel","job":7}                            stops a running plan or run of that job
 *   {"cmd":"forget","job":7}                            frees what plan made
 *   {"cmd":"score","request":17,"model":"rope-29m","prompts":["text",[15,3,8]],"max_tokens":1,"echo":true,
 *    "logprobs":true,"stop":["."]}       texts get BOS if the tokenizer adds it, ids never; at most 16 more tokens,
 *                                        each the most probable; echo: the answer has the prompt, too
 *   {"cmd":"tokenize","request":18,"model":"rope-29m","prompt":"text","add_special_tokens":false}
 *   {"cmd":"detokenize","request":19,"model":"rope-29m","tokens":[15,3,8]}
 *   {"cmd":"tokenizer_info","request":20,"model":"rope-29m"}                these three need no device
 *
 * Events (worker -> server).
 *   {"event":"hello","protocol":2,"version":"0.1.0","pid":123,
 *    "device":{"device":"cpu","kind":"cpu","name":"AMD EPYC","isa":"avx512_core","libraries":"oneDNN 2.6.3",
 *              "bf16":true,"n_threads":2,"memory_bytes":123},   kind "none": a worker that only describes
 *    "signatures":{"f32":"fathom 0.1.0; ...","bf16":"..."}}       first line, but for:
 *   {"event":"unusable","code":"device","message":"device 'cuda:0': ..."}   instead of hello; then exit status 2
 *   {"event":"described","model":"rope-29m","description":{...}}          model_describe
 *   {"event":"planned","job":7,"plan":{"model":{"name","fingerprint","tokenizer_fingerprint","n_params","position":{}},
 *    "dataset":{"name","fingerprint","n_items","n_docs"},"engine":{"device","device_name",
 *    "dtype","position","version","signature","model_flops_per_token","peak_flops"},"n_units":3,    position: the
 *    "tokens":90000,"unit_tokens":[..],"memory_bytes":123,"warnings":[]}}                           command's, or null
 *   {"event":"units","job":7,"units":[[0,{...}],[1,{...}]],"tokens":65536,"seconds":1.25}   a batch's results
 *   {"event":"progress","job":7,"phase":"plan"|"run","done":123,"total":456}  tokens of the command; at most 4 a second
 *   {"event":"idle","job":7}                            the run command is finished: every unit is reported
 *   {"event":"cancelled","job":7}                       the command was stopped; unreported units are not done
 *   {"event":"failed","job":7,"units":[3],"code":"numeric","message":"..."}  these units failed alone, the rest go on
 *   {"event":"failed","job":7,"code":"changed","message":"model changed on disk: ..."}   the plan or run failed whole
 *   {"event":"failed","code":"input","message":"command: ..."}   a line that is no command (with "job" if it had one)
 *   {"event":"failed","model":"x","code":"input","message":"..."}              the describe failed
 *   {"event":"scored","request":17,"signature":"fathom 0.1.0; ...","prompts":[{"n_prompt":3,"n_generated":1,
 *    "finish":"length"|"stop","text":"..","offsets":[0,1,..],"tokens":["a",..],"logprobs":[null,-2.5,..],
 *    "argmax":[null,"b",..],"argmax_logprobs":[null,-1.5,..]}]}   parallel arrays; offsets are in characters of `text`;
 *                                        tokens are keys (token_keys.h); the last four if logprobs were asked for; null
 *                                        for what has no score: nothing stands before it, or it is beyond the context
 *   {"event":"tokens","request":18,"tokens":[15,3,8],"n_ctx":1024}          detokenize has "prompt":"text";
 *                                        tokenizer_info "eos_token","bos_token","pad_token","chat_template", or nulls
 *   {"event":"failed","request":17,"code":"input","message":"prompt 0: ..."}
 *   {"event":"alive","done_tokens":123456}              every 2 s: a hang is a count that stands still
 *
 * "failed" has "pointer" (RFC 6901, relative to what the message is about) when a member of the request is to blame.
 * A plan replaces the job's earlier plan. `cancel` overtakes the queue: a command that it stops, running or not yet
 * begun, ends in "cancelled", one that was just finished in its own event, and a job that has no command in none.
 * `alive` and `progress` may come between any two events, and so may `scored`: requests are answered in any order, many
 * together, and interrupt a job between two of its batches.
 *
 * fd 1 is dup'ed for the protocol at start and pointed at stderr, so no library's print corrupts it. EOF on stdin means
 * that the server is gone: _exit at once, from the reader thread. */
#ifndef FATHOM_EVAL_WIRE_H
#define FATHOM_EVAL_WIRE_H

#include <stddef.h>

#define WIRE_PROTOCOL 2
#define WIRE_MAX_LINE ((size_t)64 << 20)

/* Of a "score" command. */
#define WIRE_MAX_PROMPTS 2048
#define WIRE_MAX_NEW     16 /* tokens that are generated */

#endif

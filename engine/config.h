/* config.json of a checkpoint, into a struct model_config. Private to engine/. */
#ifndef FATHOM_ENGINE_CONFIG_H
#define FATHOM_ENGINE_CONFIG_H

#include "engine/json.h"
#include "engine/model.h"

/* Reads and checks every setting; the family must be one that this program computes exactly. Errors name key and
 * value ("config.json: hidden_size is 0, want 1 to 1048576"). A key that is not known is logged as ignored; one that
 * would change the numbers (sliding_window, quantization_config, ...) is refused. */
err_code config_read(const struct json *config, struct model_config *out, struct err *e);

/* "gelu_pytorch_tanh", ...: the value of hidden_act. */
const char *activation_name(enum activation a);

#endif

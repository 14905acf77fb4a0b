/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What makes two processes compute the same bytes: the llama.cpp that runs, and how its model and
 * context were made. (The model's own bytes: kvpool_llama_file_identity().)
 *
 * Pure functions over their arguments and the running program, usable from any thread.
 */
#ifndef KVPOOL_CLIENT_LLAMA_IDENTITY_H
#define KVPOOL_CLIENT_LLAMA_IDENTITY_H

#include "client/llama/kvpool_llama.h"

/*
 * SHA-256 in hex of the library files that are loaded of llama.cpp (or of the program, where it is
 * linked in) and of what it says about processor and devices. -errno.
 */
int kvpool_llama_build_identity(char out[KVPOOL_LLAMA_IDENTITY_BYTES]);

/*
 * A text of everything about model and context that may change what is computed; malloc'ed, NULL
 * where there is no memory.
 */
char *kvpool_llama_parameters(const struct llama_model *model, const struct llama_context *context,
			      const struct llama_model_params *model_params,
			      const struct llama_context_params *context_params);

#endif

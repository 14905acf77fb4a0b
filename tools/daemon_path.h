/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the kvpoold is that belongs to this tool.
 *
 * Pure but for looking at the file system; main thread.
 */
#ifndef KVPOOL_TOOLS_DAEMON_PATH_H
#define KVPOOL_TOOLS_DAEMON_PATH_H

#define KVPOOL_DAEMON_PROGRAM_BYTES 4096

/*
 * `given`; $KVPOOLD; beside this program, or where the build tree has it; else "kvpoold", for exec
 * to look up in PATH.
 */
void kvpool_daemon_path_find(const char *given, char out[KVPOOL_DAEMON_PROGRAM_BYTES]);

#endif

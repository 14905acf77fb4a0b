# SPDX-License-Identifier: Apache-2.0
"""Real engines for proofs and experiments: installing them, running them as child processes."""

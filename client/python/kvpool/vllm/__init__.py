# SPDX-License-Identifier: Apache-2.0
"""vLLM finds the pool by itself: installing kvpool beside vLLM is all it takes.

:mod:`.plugin` is loaded by vLLM and chooses :class:`.connector.KvpoolConnector` where the user
chose none. The connector is a shim over :mod:`kvpool.engine`; what it takes from vLLM it takes in
:mod:`.connector`, :mod:`.facts`, :mod:`.geometry` and :mod:`.metrics` only.
"""

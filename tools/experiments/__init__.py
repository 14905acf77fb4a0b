# SPDX-License-Identifier: Apache-2.0
"""The experiment on real engines: what prompt caching across engines is worth, and when."""

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the topology and pins. No state; any thread may pin itself.
 */
#include "tools/bench/cpus.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>

static int topology(int cpu, const char *what)
{
	char path[96];
	FILE *file;
	int value = -1;

	snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/topology/%s", cpu, what);
	file = fopen(path, "re");
	if (!file)
		return -1;
	if (fscanf(file, "%d", &value) != 1)
		value = -1;
	fclose(file);
	return value;
}

static bool same_package(int a, int b)
{
	return topology(a, "physical_package_id") == topology(b, "physical_package_id");
}

static bool same_core(int a, int b)
{
	return a == b || (same_package(a, b) && topology(a, "core_id") >= 0 &&
			  topology(a, "core_id") == topology(b, "core_id"));
}

static bool is_in(int cpu, const cpu_set_t *set)
{
	return cpu >= 0 && cpu < CPU_SETSIZE && CPU_ISSET((size_t)cpu, set);
}

static int first_allowed(const cpu_set_t *allowed)
{
	int skip = CPU_COUNT(allowed) >= 4;

	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (is_in(cpu, allowed) && skip-- <= 0)
			return cpu;
	}
	return 0;
}

/* A core for the other side: of its own in the same package, else of its own, else any. */
static int companion(const cpu_set_t *allowed, int client)
{
	int fallback = client;

	for (int cpu = CPU_SETSIZE - 1; cpu >= 0; cpu--) {
		if (!is_in(cpu, allowed) || same_core(cpu, client))
			continue;
		fallback = cpu;
	}
	for (int i = 1; i < CPU_SETSIZE; i++) {
		int cpu = (client + i) % CPU_SETSIZE;

		if (is_in(cpu, allowed) && !same_core(cpu, client) && same_package(cpu, client))
			return cpu;
	}
	return fallback;
}

int kvpool_cpus_choose(const struct kvpool_bench_options *options, struct kvpool_cpus *out)
{
	struct kvpool_cpus cpus = {.client = options->client_cpu, .daemon = options->daemon_cpu};
	cpu_set_t allowed;

	if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0)
		return kvpool_bench_fail(-errno, "cannot read the allowed cores");
	if ((cpus.client >= 0 && !is_in(cpus.client, &allowed)) ||
	    (cpus.daemon >= 0 && !is_in(cpus.daemon, &allowed)))
		return kvpool_bench_fail(-EINVAL, "core %d or %d is not among the %d allowed",
					 cpus.client, cpus.daemon, CPU_COUNT(&allowed));
	if (cpus.client < 0)
		cpus.client = cpus.daemon >= 0 ? companion(&allowed, cpus.daemon)
					       : first_allowed(&allowed);
	if (cpus.daemon < 0)
		cpus.daemon = companion(&allowed, cpus.client);
	cpus.apart = !same_core(cpus.client, cpus.daemon);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (is_in(cpu, &allowed) && !same_core(cpu, cpus.client) &&
		    !same_core(cpu, cpus.daemon) && cpus.n_others < KVPOOL_ARRAY_SIZE(cpus.others))
			cpus.others[cpus.n_others++] = cpu;
	}
	*out = cpus;
	return 0;
}

int kvpool_cpus_pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET((size_t)cpu, &set);
	return sched_setaffinity(0, sizeof(set), &set) == 0 ? 0 : -errno;
}

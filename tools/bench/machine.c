/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads what the machine says of itself. No state; main thread.
 */
#include "tools/bench/machine.h"

#include "commit.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

/*
 * Copies the rest of the first line that starts with `name` and a separator (':', blanks) to
 * `out`. Returns whether there is one.
 */
static int read_field(const char *path, const char *name, char *out, size_t out_bytes)
{
	FILE *file = fopen(path, "re");
	char line[4096];
	int found = 0;

	if (!file)
		return 0;
	while (!found && fgets(line, sizeof(line), file)) {
		size_t length = strlen(name);

		if (strncmp(line, name, length) != 0 || !strchr(" \t:", line[length]))
			continue;
		length += strspn(line + length, " \t:");
		snprintf(out, out_bytes, "%.*s", (int)strcspn(line + length, "\n"), line + length);
		found = 1;
	}
	fclose(file);
	return found;
}

static void read_line(const char *path, char *out, size_t out_bytes)
{
	FILE *file = fopen(path, "re");

	if (!file || !fgets(out, (int)out_bytes, file))
		snprintf(out, out_bytes, "unknown");
	out[strcspn(out, "\n")] = '\0';
	if (file)
		fclose(file);
}

uint64_t kvpool_machine_cache_bytes(void)
{
	static const int names[] = {_SC_LEVEL4_CACHE_SIZE, _SC_LEVEL3_CACHE_SIZE,
				    _SC_LEVEL2_CACHE_SIZE};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		long bytes = sysconf(names[i]);

		if (bytes > 0)
			return (uint64_t)bytes;
	}
	return 0;
}

static uint64_t meminfo_bytes(const char *name)
{
	char text[64];
	uint64_t kib;

	if (!read_field("/proc/meminfo", name, text, sizeof(text)) ||
	    sscanf(text, "%" SCNu64, &kib) != 1)
		return 0;
	return kib * 1024;
}

uint64_t kvpool_machine_available_bytes(void)
{
	return meminfo_bytes("MemAvailable");
}

static json_t *describe_machine(void)
{
	char model[128] = "unknown";
	char flags[4096];
	char thp[64];
	int virtual = 0;

	if (!read_field("/proc/cpuinfo", "model name", model, sizeof(model)))
		read_field("/proc/cpuinfo", "CPU implementer", model, sizeof(model));
	if (read_field("/proc/cpuinfo", "flags", flags, sizeof(flags)))
		virtual = strstr(flags, "hypervisor") != NULL;
	read_line("/sys/kernel/mm/transparent_hugepage/shmem_enabled", thp, sizeof(thp));
	return json_pack("{s:s, s:I, s:I, s:I, s:b, s:s}", "cpu", model, "cpus",
			 (json_int_t)sysconf(_SC_NPROCESSORS_ONLN), "cache_bytes",
			 (json_int_t)kvpool_machine_cache_bytes(), "memory_bytes",
			 (json_int_t)meminfo_bytes("MemTotal"), "virtual", virtual,
			 "shmem_huge_pages", thp);
}

int kvpool_machine_describe(json_t *into)
{
	time_t now = time(NULL);
	struct utsname name;
	struct tm utc;
	char date[32];
	char kernel[sizeof(name.sysname) + sizeof(name.release) + sizeof(name.machine) + 3];

	if (uname(&name) != 0)
		return -errno;
	gmtime_r(&now, &utc);
	strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%SZ", &utc);
	snprintf(kernel, sizeof(kernel), "%s %s %s", name.sysname, name.release, name.machine);
	if (json_object_set_new(into, "machine", describe_machine()) != 0 ||
	    json_object_set_new(into, "kernel", json_string(kernel)) != 0 ||
	    json_object_set_new(into, "commit", json_string(KVPOOL_BENCH_COMMIT)) != 0 ||
	    json_object_set_new(into, "date", json_string(date)) != 0)
		return -ENOMEM;
	return 0;
}

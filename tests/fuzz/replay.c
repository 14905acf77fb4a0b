/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a fuzz target over files and folders given on the command line: the corpus as a regression
 * test, in any build, without libFuzzer.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#define INPUT_MAX (1u << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int run_file(const char *path)
{
	static uint8_t data[INPUT_MAX];
	FILE *file = fopen(path, "rb");
	size_t n;

	if (!file) {
		perror(path);
		return -1;
	}
	n = fread(data, 1, sizeof(data), file);
	fclose(file);
	LLVMFuzzerTestOneInput(data, n);
	return 1;
}

/* How many inputs ran; -1: one could not be read. */
static int run_path(const char *path)
{
	struct dirent **names;
	struct stat info;
	int n, ran = 0;

	if (stat(path, &info) != 0) {
		perror(path);
		return -1;
	}
	if (!S_ISDIR(info.st_mode))
		return run_file(path);
	n = scandir(path, &names, NULL, alphasort);
	for (int i = 0; i < n; i++) {
		char file[4096];

		if (names[i]->d_name[0] != '.' && ran >= 0) {
			int r;

			snprintf(file, sizeof(file), "%s/%s", path, names[i]->d_name);
			r = run_file(file);
			ran = r < 0 ? r : ran + r;
		}
		free(names[i]);
	}
	if (n >= 0)
		free(names);
	return n < 0 ? -1 : ran;
}

int main(int argc, char **argv)
{
	int total = 0;

	for (int i = 1; i < argc; i++) {
		int ran = run_path(argv[i]);

		if (ran < 0)
			return EXIT_FAILURE;
		total += ran;
	}
	printf("%d inputs\n", total);
	return total > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

/*
 * A log file that is rotated by size: FILE, FILE.1 (newest) … FILE.N. Writing never fails and never
 * ends a process: a line that the disk does not take goes to standard error. Thread-safe.
 */
#pragma once

#include "base/err.h"

struct log_file;

/* Folders are made. backups 0: a full file is begun anew. */
int log_file_open(const char *path, uint64_t max_bytes, unsigned backups, struct log_file **ret,
                  struct err *err);
void log_file_write(struct log_file *f, const char *line, size_t len);
/* Opens the file by its name again (somebody has moved it away). */
void log_file_reopen(struct log_file *f);
struct log_file *log_file_close(struct log_file *f); /* returns NULL */

// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
//
// What a plugin does: opens the library that argv[1] names, asks for the table, and calls through
// it. Run by test_cpp_package.py, on two ranks.
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "farandole/farandole.h"

static const farandole_api* api;

static int failed(const char* what) {
  fprintf(stderr, "%s: %s\n", what, api->last_error()->message);
  return 1;
}

// The premultiplied sum of what the ranks have, started and waited for.
static int sum(farandole_communicator* world, double* values, size_t count) {
  const farandole_arguments arguments = {.struct_size = sizeof(arguments),
                                         .collective = FARANDOLE_ALLREDUCE,
                                         .in = values,
                                         .out = values,
                                         .count = count,
                                         .dtype = FARANDOLE_FLOAT64,
                                         .reduction = FARANDOLE_PREMULTIPLIED_SUM,
                                         .factor = 0.5};
  const farandole_options options = {.struct_size = sizeof(options), .name = "plugin"};
  farandole_request* request = NULL;
  int32_t done = 0;
  if (api->start(world, &arguments, &options, &request) != FARANDOLE_OK) return failed("start");
  while (!done) {
    if (api->wait_for(request, 100, &done) != FARANDOLE_OK) return failed("wait_for");
  }
  return api->request_release(request) == FARANDOLE_OK ? 0 : failed("request_release");
}

// A bad argument is an error that names it, and leaves everything as it was.
static int refuses(farandole_communicator* world) {
  const farandole_arguments wrong = {.struct_size = sizeof(wrong), .dtype = 99};
  if (api->run(world, &wrong, NULL) != FARANDOLE_INVALID_ARGUMENT) return failed("refuses");
  return strstr(api->last_error()->message, "'arguments.dtype' is 99") ? 0 : failed("names");
}

int main(int argument_count, char** arguments) {
  if (argument_count != 2) return 2;
  void* const library = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) return fprintf(stderr, "%s\n", dlerror()), 2;
  const farandole_api* (*get_api)(uint32_t) = NULL;
  *(void**)&get_api = dlsym(library, "farandole_get_api");
  if (get_api == NULL) return fprintf(stderr, "%s\n", dlerror()), 2;
  api = get_api(FARANDOLE_API_VERSION);
  if (api == NULL || api->struct_size < sizeof(*api) || get_api(0) != NULL) return 2;

  farandole_context* context = NULL;
  farandole_communicator* world = NULL;
  farandole_ranks ranks = {.struct_size = sizeof(ranks)};
  if (api->init(&context) != FARANDOLE_OK) return failed("init");
  if (api->get_ranks(context, &ranks) != FARANDOLE_OK) return failed("get_ranks");
  if (api->world(context, &world) != FARANDOLE_OK) return failed("world");
  double values[3] = {2.0 * ranks.rank, 4.0, 6.0};
  if (sum(world, values, 3) != 0 || refuses(world) != 0) return 1;
  printf("rank %d: %g %g %g\n", (int)ranks.rank, values[0], values[1], values[2]);
  if (api->communicator_release(world) != FARANDOLE_OK) return failed("communicator_release");
  if (api->finalize(context) != FARANDOLE_OK) return failed("finalize");
  return dlclose(library);
}

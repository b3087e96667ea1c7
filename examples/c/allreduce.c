// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
//
// Sums an array over all processes: farandole run -n 4 build/example/allreduce
#include <stdio.h>

#include "farandole/farandole.h"

enum { kCount = 1000 };

static int fail(void) {
  fprintf(stderr, "%s\n", farandole_last_error()->message);
  return 1;
}

static int sum_and_print(farandole_context* context, farandole_communicator* world) {
  farandole_ranks ranks = {.struct_size = sizeof(ranks)};
  if (farandole_get_ranks(context, &ranks) != FARANDOLE_OK) return fail();

  float mine[kCount], sum[kCount];
  for (int i = 0; i < kCount; ++i) mine[i] = (float)(ranks.rank + 1);
  const farandole_arguments arguments = {.struct_size = sizeof(arguments),
                                         .collective = FARANDOLE_ALLREDUCE,
                                         .in = mine,
                                         .out = sum,
                                         .count = kCount,
                                         .dtype = FARANDOLE_FLOAT32,
                                         .reduction = FARANDOLE_SUM};
  if (farandole_run(world, &arguments, NULL) != FARANDOLE_OK) return fail();
  printf("rank %d of %d: every sum is %g\n", (int)ranks.rank, (int)ranks.size, sum[0]);
  return 0;
}

int main(void) {
  farandole_context* context = NULL;
  farandole_communicator* world = NULL;
  if (farandole_init(&context) != FARANDOLE_OK) return fail();
  if (farandole_world(context, &world) != FARANDOLE_OK) return fail();
  const int status = sum_and_print(context, world);
  farandole_communicator_release(world);
  farandole_finalize(context);
  return status;
}

// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
//
// Sums an array over all processes: farandole run -n 4 build/example/allreduce
#include <cstdio>
#include <vector>

#include "farandole/farandole.hpp"

namespace fd = farandole;

namespace {

int fail(const fd::Error& error) {
  std::fprintf(stderr, "%s\n", error.message.c_str());
  return 1;
}

}  // namespace

int main() {
  auto joined = fd::Context::from_environment();
  if (!joined) return fail(joined.error());
  fd::Context& context = **joined;
  fd::Communicator world = context.world();

  const std::vector<float> mine(1000, static_cast<float>(context.rank().value() + 1));
  std::vector<float> sum(mine.size());
  const fd::Count count{mine.size()};
  if (auto done = world.allreduce(mine.data(), sum.data(), count, fd::DType::kFloat32); !done) {
    return fail(done.error());
  }
  std::printf("rank %d of %d: every sum is %g\n", context.rank().value(), context.size(), sum[0]);
  return 0;
}

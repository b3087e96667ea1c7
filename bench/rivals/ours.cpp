// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
// Farandole's C++ library. RIVALS_BUFFERS=library: buffers that peers read in place.
#include <cstdio>
#include <vector>

#include "farandole/farandole.hpp"
#include "measure.hpp"

namespace {

using rivals::Collective;

void require(const farandole::Result<void>& result) {
  if (result) return;
  std::fprintf(stderr, "%s\n", result.error().message.c_str());
  std::exit(1);
}

class Ours final : public rivals::Library {
 public:
  explicit Ours(farandole::Context& context) : context_(context), world_(context.world()) {
    const char* buffers = std::getenv("RIVALS_BUFFERS");
    owns_ = buffers != nullptr && std::strcmp(buffers, "library") == 0;
  }
  int rank() const override { return world_.rank().value(); }
  int size() const override { return world_.size(); }
  float* allocate(std::size_t bytes) override {
    if (!owns_) {
      return static_cast<float*>(std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096));
    }
    kept_.push_back(*context_.allocate(farandole::Bytes{bytes}));
    return reinterpret_cast<float*>(kept_.back().get());
  }
  void run(Collective collective, float* data, float* block, std::size_t count) override {
    const farandole::Count n{count}, each{count / static_cast<std::size_t>(size())};
    switch (collective) {
      case Collective::kAllreduce:
        require(world_.allreduce(data, data, n, farandole::DType::kFloat32));
        break;
      case Collective::kAllreduceApart:
        require(world_.allreduce(data, block, n, farandole::DType::kFloat32));
        break;
      case Collective::kReducescatter:
        require(world_.reducescatter(data, block, each, farandole::DType::kFloat32));
        break;
      case Collective::kAllgather:
        require(world_.allgather(block, data, each, farandole::DType::kFloat32));
        break;
      case Collective::kBroadcast:
        require(world_.broadcast(data, data, n, farandole::DType::kFloat32, farandole::Rank{0}));
        break;
    }
  }
  void barrier() override { require(world_.barrier()); }
  double max_over_ranks(double value) override {
    double most = 0;
    require(world_.allreduce(&value, &most, farandole::Count{1}, farandole::DType::kFloat64,
                             farandole::Reduction::kMax));
    return most;
  }

 private:
  farandole::Context& context_;
  farandole::Communicator world_;
  bool owns_ = false;
  std::vector<std::shared_ptr<std::byte>> kept_;
};

}  // namespace

int main(int argc, char** argv) {
  rivals::bind_if_asked(rivals::launched_rank());
  auto context = farandole::Context::from_environment();
  if (!context) {
    std::fprintf(stderr, "%s\n", context.error().message.c_str());
    return 1;
  }
  Ours ours(**context);
  return rivals::measure(ours, argc, argv);
}

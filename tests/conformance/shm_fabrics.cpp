// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "conformance/harness.hpp"
#include "transport/inproc/inproc.hpp"

// The shared-memory transport several ways: mapped by plain pointer or, as between processes,
// through /proc; reading sources in place, or staging them all, or having the kernel copy what lies
// in ordinary memory.
namespace farandole::conformance {
namespace {

class InprocFabric : public Fabric {
 public:
  explicit InprocFabric(std::vector<ThreadRank> ranks) : ranks_(std::move(ranks)) {}
  End end(int rank) override {
    ThreadRank& r = ranks_[static_cast<std::size_t>(rank)];
    return {r.transport.get(), r.memory.get(), r.doorbell.get()};
  }

 private:
  std::vector<ThreadRank> ranks_;
};

MakeFabric make(InprocOptions options) {
  return [options](int rank_count) -> Result<std::unique_ptr<Fabric>> {
    auto ranks = make_inproc(rank_count, options);
    if (!ranks) return ranks.error();
    return std::unique_ptr<Fabric>(std::make_unique<InprocFabric>(*std::move(ranks)));
  };
}

const FabricRegistration kInproc("inproc", make({}));
const FabricRegistration kInprocStaged("inproc_staged", make({.peer_memory = false}));
const FabricRegistration kInprocKernel("inproc_kernel", make({.all_memory = true}));
const FabricRegistration kShm("shm", make({.map_through_proc = true}));
const FabricRegistration kShmStaged("shm_staged",
                                    make({.peer_memory = false, .map_through_proc = true}));

const FabricRegistration kShmKernel("shm_kernel",
                                    make({.all_memory = true, .map_through_proc = true}));

}  // namespace
}  // namespace farandole::conformance

// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/shm/row.hpp"

#include <utility>

#include "base/settings.hpp"
#include "transport/shm/shm_transport.hpp"

namespace farandole::shm {
namespace {

// Assumed: the time until another core sees a flag; the rate of a core that copies from its cache.
constexpr MessageCost kMemory{.alpha = 1e-6,
                              .overhead = 0.3e-6,
                              .bytes_per_second = 8e9,
                              .through_memory = true,
                              // With 10 GB/s two ranks reduce directly from 16 KiB on. Allreduce of
                              // 16 and 32 KiB, us, direct and by recursive doubling. Ordinary
                              // memory: an AMD EPYC 1.8, 3.7 and 2.2, 4.4; an Intel Xeon 5.0, 7.2
                              // and 4.1, 6.0. Library-owned memory: 1.1, 1.5 and 3.3, 6.3; 1.9, 2.4
                              // and 4.0, 5.7.
                              .reduce_bytes_per_second = 10e9};
// Where ranks share a core, a round waits until the other ranks of the core have run, and a message
// waits for a core that another rank's messages have used. These are the seconds for each rank of
// the core. Allreduce of 512 bytes on two cores of an AMD EPYC, us, in one round to all, by
// recursive doubling, and direct: three ranks 2.4, 3.9, 4.4; four 3.9, 5.2, 8.0; eight 11, 16, 20;
// of 256 bytes, sixteen ranks 41, 57, 75. The model has 2.8, 7.0, 5.2; 4.1, 6.2, 7.7; 12, 18, 22;
// 35, 48, 69.
constexpr double kSharedCoreAlpha = 1.5e-6, kSharedCoreOverhead = 0.2e-6;

}  // namespace

bool reaches_row(const Member& self, const Member& peer) {
  return ShmTransport::reaches(self, peer);
}

Result<std::map<std::string, std::string>> publish_row(Memory& memory, const Doorbell& bell) {
  return ShmTransport::record(memory, bell);
}

Result<std::unique_ptr<Transport>> create_row(const TransportSite& site) {
  auto without = text_setting("FARANDOLE_SHM_WITHOUT");
  if (!without) return without.error();
  auto paths = CopyPaths::all_but(*without);
  if (!paths) {
    return Error{paths.error().kind, "FARANDOLE_SHM_WITHOUT: " + paths.error().message};
  }
  ShmTransport::Options options;
  options.all_memory = site.peer_memory && paths->kernel && PeerProcess::pays();
  options.paths = *paths;
  auto made =
      ShmTransport::create(site.self, site.members, site.memory, site.doorbell, std::move(options));
  if (!made) return made.error();
  if (site.peer_memory) {
    auto registered =
        (*made)->register_memory({site.memory.base(), site.memory.reserved().value()});
    if (!registered) return registered.error();
  }
  return std::unique_ptr<Transport>(*std::move(made));
}

MessageCost cost_of(const Distance& distance) {
  MessageCost cost = kMemory;
  if (distance.shares_cores()) {
    cost.alpha = kSharedCoreAlpha * distance.ranks_per_core();
    cost.overhead = kSharedCoreOverhead * distance.ranks_per_core();
  }
  return cost;
}

}  // namespace farandole::shm

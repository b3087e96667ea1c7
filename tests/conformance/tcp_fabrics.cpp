// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include "conformance/harness.hpp"
#include "transport/fault/fault_transport.hpp"
#include "transport/inproc/inproc.hpp"
#include "transport/tcp/tcp_transport.hpp"
#include "unit/transport/tcp_sockets.hpp"

// TCP over the loopback interface with one and with three connections per pair, and the fault
// injector over TCP and over shared memory, with delays, stalls, overtaking and false wake-ups:
// all that a transport may do without breaking its promises.
namespace farandole::conformance {
namespace {

struct TcpRank {
  std::unique_ptr<tcp::HubConnector> connector;
  ThreadRank owned;  // memory, doorbell and the transport under test
};

class TcpFabric : public Fabric {
 public:
  End end(int rank) override {
    const ThreadRank& owned = ranks_[static_cast<std::size_t>(rank)].owned;
    return {owned.transport.get(), owned.memory.get(), owned.doorbell.get()};
  }

  Result<void> add(int rank_count, int connection_count) {
    const Rank self{static_cast<int>(ranks_.size())};
    TcpRank& made = ranks_.emplace_back();
    auto memory = Memory::create(Bytes{std::size_t{1} << 30});
    if (!memory) return memory.error();
    made.owned.memory = *std::move(memory);
    auto* armed = new (made.owned.memory->header()) std::atomic<std::uint32_t>(0);
    auto doorbell = Doorbell::create(*armed);
    if (!doorbell) return doorbell.error();
    made.owned.doorbell = *std::move(doorbell);
    made.connector = std::make_unique<tcp::HubConnector>(hub_, self);
    auto transport = tcp::TcpTransport::create(self, rank_count, *made.connector,
                                               {.connection_count = connection_count,
                                                .near_connection_count_max = connection_count,
                                                .on_link_lost = {}});
    if (!transport) return transport.error();
    made.owned.transport = *std::move(transport);
    return {};
  }

  template <class Wrap>
  void wrap(Wrap wrap) {
    for (TcpRank& each : ranks_) each.owned.transport = wrap(std::move(each.owned.transport));
  }

 private:
  tcp::SocketHub hub_{tcp::tcp_pair};
  std::vector<TcpRank> ranks_;
};

class InprocFabric : public Fabric {
 public:
  explicit InprocFabric(std::vector<ThreadRank> ranks) : ranks_(std::move(ranks)) {}
  End end(int rank) override {
    ThreadRank& owned = ranks_[static_cast<std::size_t>(rank)];
    return {owned.transport.get(), owned.memory.get(), owned.doorbell.get()};
  }

 private:
  std::vector<ThreadRank> ranks_;
};

Result<std::unique_ptr<TcpFabric>> make_tcp(int rank_count, int connection_count) {
  auto fabric = std::make_unique<TcpFabric>();
  for (int rank = 0; rank < rank_count; ++rank) {
    if (auto added = fabric->add(rank_count, connection_count); !added) return added.error();
  }
  return fabric;
}

// Every rank has a seed of its own, the same in every run.
class Weather {
 public:
  std::unique_ptr<Transport> operator()(std::unique_ptr<Transport> inner) {
    return std::make_unique<FaultTransport>(
        std::move(inner), FaultTransport::Options{.seed = ++seed_,
                                                  .post_delay_max = 5,
                                                  .reorder = true,
                                                  .stall_every = 4,
                                                  .stall_max = 8,
                                                  .wake_every = 3,
                                                  .kill_after_sends = std::nullopt,
                                                  .on_kill = {}});
  }

 private:
  std::uint64_t seed_ = 0;
};

MakeFabric tcp_with(int connection_count) {
  return [connection_count](int rank_count) -> Result<std::unique_ptr<Fabric>> {
    auto fabric = make_tcp(rank_count, connection_count);
    if (!fabric) return fabric.error();
    return std::unique_ptr<Fabric>(*std::move(fabric));
  };
}

Result<std::unique_ptr<Fabric>> fault_over_tcp(int rank_count) {
  auto fabric = make_tcp(rank_count, 2);
  if (!fabric) return fabric.error();
  (*fabric)->wrap(Weather());
  return std::unique_ptr<Fabric>(*std::move(fabric));
}

Result<std::unique_ptr<Fabric>> fault_over_inproc(int rank_count) {
  auto ranks = make_inproc(rank_count);
  if (!ranks) return ranks.error();
  Weather weather;
  for (ThreadRank& rank : *ranks) rank.transport = weather(std::move(rank.transport));
  return std::unique_ptr<Fabric>(std::make_unique<InprocFabric>(*std::move(ranks)));
}

const FabricRegistration kTcp1("tcp_1", tcp_with(1));
const FabricRegistration kTcp4("tcp_4", tcp_with(4));
const FabricRegistration kFaultTcp("fault_tcp", fault_over_tcp);
const FabricRegistration kFaultInproc("fault_inproc", fault_over_inproc);

}  // namespace
}  // namespace farandole::conformance

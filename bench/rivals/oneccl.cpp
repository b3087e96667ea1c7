// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
// oneCCL, started by Intel MPI's mpiexec; MPI tells the ranks where to meet, and compares times.
#include <oneapi/ccl.hpp>

#include "mpi_ranks.hpp"

namespace {

using rivals::Collective;

constexpr auto kFloat = ccl::datatype::float32;

class OneCcl final : public rivals::MpiRanks {
 public:
  OneCcl() {
    ccl::kvs::address_type address{};
    if (rank() == 0) {
      store_ = ccl::create_main_kvs();
      address = store_->get_address();
    }
    MPI_Bcast(address.data(), static_cast<int>(address.size()), MPI_BYTE, 0, MPI_COMM_WORLD);
    if (rank() != 0) store_ = ccl::create_kvs(address);
    world_ = std::make_unique<ccl::communicator>(ccl::create_communicator(size(), rank(), store_));
    lengths_.resize(static_cast<std::size_t>(size()));
  }
  void run(Collective collective, float* data, float* block, std::size_t count) override {
    const std::size_t each = count / static_cast<std::size_t>(size());
    switch (collective) {
      case Collective::kAllreduce:
        ccl::allreduce(data, data, count, kFloat, ccl::reduction::sum, *world_).wait();
        break;
      case Collective::kAllreduceApart:
        ccl::allreduce(data, block, count, kFloat, ccl::reduction::sum, *world_).wait();
        break;
      case Collective::kReducescatter:
        ccl::reduce_scatter(data, block, each, kFloat, ccl::reduction::sum, *world_).wait();
        break;
      case Collective::kAllgather:
        std::fill(lengths_.begin(), lengths_.end(), each);
        ccl::allgatherv(block, each, data, lengths_, kFloat, *world_).wait();
        break;
      case Collective::kBroadcast:
        ccl::broadcast(data, count, kFloat, 0, *world_).wait();
        break;
    }
  }

 private:
  ccl::shared_ptr_class<ccl::kvs> store_;
  std::unique_ptr<ccl::communicator> world_;
  ccl::vector_class<std::size_t> lengths_;
};

}  // namespace

int main(int argc, char** argv) {
  rivals::bind_if_asked(rivals::launched_rank());
  ccl::init();
  return rivals::measure_over_mpi<OneCcl>(argc, argv);
}

// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
// oneCCL, started by Intel MPI's mpiexec; MPI tells the ranks where to meet, and compares times.
#include <mpi.h>

#include <oneapi/ccl.hpp>

#include "measure.hpp"

namespace {

using rivals::Collective;

constexpr auto kFloat = ccl::datatype::float32;

class OneCcl final : public rivals::Library {
 public:
  OneCcl() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
    ccl::kvs::address_type address{};
    if (rank_ == 0) {
      store_ = ccl::create_main_kvs();
      address = store_->get_address();
    }
    MPI_Bcast(address.data(), static_cast<int>(address.size()), MPI_BYTE, 0, MPI_COMM_WORLD);
    if (rank_ != 0) store_ = ccl::create_kvs(address);
    world_ = std::make_unique<ccl::communicator>(ccl::create_communicator(size_, rank_, store_));
    lengths_.resize(static_cast<std::size_t>(size_));
  }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  float* allocate(std::size_t bytes) override {
    return static_cast<float*>(std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096));
  }
  void run(Collective collective, float* data, float* block, std::size_t count) override {
    const std::size_t each = count / static_cast<std::size_t>(size_);
    switch (collective) {
      case Collective::kAllreduce:
        ccl::allreduce(data, data, count, kFloat, ccl::reduction::sum, *world_).wait();
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
  void barrier() override { MPI_Barrier(MPI_COMM_WORLD); }
  double max_over_ranks(double value) override {
    double most = 0;
    MPI_Allreduce(&value, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return most;
  }

 private:
  int rank_ = 0, size_ = 1;
  ccl::shared_ptr_class<ccl::kvs> store_;
  std::unique_ptr<ccl::communicator> world_;
  ccl::vector_class<std::size_t> lengths_;
};

}  // namespace

int main(int argc, char** argv) {
  ccl::init();
  MPI_Init(&argc, &argv);
  int code = 0;
  {
    OneCcl library;
    code = rivals::measure(library, argc, argv);
  }
  MPI_Finalize();
  return code;
}

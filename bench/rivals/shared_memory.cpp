// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
// How fast this machine could be: collectives over buffers that all ranks map, each rank reducing
// its slice of all of them in place, with nothing that a library needs beside. RIVALS_RANKS says
// how many processes.
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <new>
#include <vector>

#include "measure.hpp"

namespace {

using rivals::Collective;

constexpr std::size_t kArena = std::size_t{1} << 30;  // of each rank; pages come when touched

struct alignas(64) Line {
  std::atomic<std::uint32_t> sequence{0};
  float payload[15]{};
};

struct alignas(64) Shared {
  Line barrier[64];
  Line tiny[2][64];  // by turns, so that nobody writes what a slower rank still reads
  std::atomic<double> values[64];
};

class Reference final : public rivals::Library {
 public:
  Reference(Shared& shared, std::byte* arenas, int rank, int size)
      : shared_(shared), arenas_(arenas), rank_(rank), size_(size) {
    yields_ = size > static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  float* allocate(std::size_t bytes) override {
    std::byte* place = arenas_ + std::size_t(rank_) * kArena + used_;
    used_ += (bytes + 4095) / 4096 * 4096;
    return reinterpret_cast<float*>(place);
  }
  void run(Collective collective, float* data, float* block, std::size_t count) override {
    if (sums(collective) && collective != Collective::kReducescatter && count <= 15) {
      float* const out = collective == Collective::kAllreduce ? data : block;
      if (out != data) std::memcpy(out, data, count * sizeof(float));
      return tiny(out, count);
    }
    const std::size_t each = count / std::size_t(size_);
    barrier();
    if (collective == Collective::kAllreduce || collective == Collective::kAllreduceApart) {
      const std::size_t first = count * std::size_t(rank_) / std::size_t(size_) / 16 * 16;
      const bool is_last = rank_ + 1 == size_;
      const std::size_t last =
          is_last ? count : count * std::size_t(rank_ + 1) / std::size_t(size_) / 16 * 16;
      reduce(data, collective == Collective::kAllreduce ? data : block, first, last, true);
    } else if (collective == Collective::kReducescatter) {
      reduce(data, block - std::size_t(rank_) * each, std::size_t(rank_) * each,
             std::size_t(rank_ + 1) * each, false);
    } else if (collective == Collective::kAllgather) {
      for (int r = 0; r < size_; ++r) {
        std::memcpy(data + std::size_t(r) * each, of(r, block), each * sizeof(float));
      }
    } else if (rank_ != 0) {
      std::memcpy(data, of(0, data), count * sizeof(float));
    }
    barrier();
  }
  void barrier() override {
    const std::uint32_t turn = ++barriers_;
    shared_.barrier[rank_].sequence.store(turn, std::memory_order_release);
    for (int r = 0; r < size_; ++r) await(shared_.barrier[r], turn);
  }
  double max_over_ranks(double value) override {
    shared_.values[rank_] = value;
    barrier();
    double most = 0;
    for (int r = 0; r < size_; ++r) most = std::max(most, shared_.values[r].load());
    barrier();
    return most;
  }

 private:
  float* of(int rank, float* mine) const {
    return reinterpret_cast<float*>(reinterpret_cast<std::byte*>(mine) +
                                    (rank - rank_) * static_cast<std::ptrdiff_t>(kArena));
  }
  void await(const Line& line, std::uint32_t turn) const {
    while (static_cast<std::int32_t>(line.sequence.load(std::memory_order_acquire) - turn) < 0) {
      if (yields_) {
        sched_yield();
      } else {
        __builtin_ia32_pause();
      }
    }
  }
  void tiny(float* data, std::size_t count) {
    const std::uint32_t turn = ++tinies_;
    Line* lines = shared_.tiny[turn % 2];
    std::memcpy(lines[rank_].payload, data, count * sizeof(float));
    lines[rank_].sequence.store(turn, std::memory_order_release);
    for (int r = 0; r < size_; ++r) {
      await(lines[r], turn);
      for (std::size_t i = 0; i < count; ++i) {
        data[i] = r == 0 ? lines[r].payload[i] : data[i] + lines[r].payload[i];
      }
    }
  }
  void reduce(float* data, float* out, std::size_t first, std::size_t last, bool everywhere) {
    constexpr std::size_t kPiece = 4096;  // stays in the first cache
    for (std::size_t at = first; at < last; at += kPiece) {
      const std::size_t n = std::min(kPiece, last - at);
      float* sum = sum_;
      std::memcpy(sum, data + at, n * sizeof(float));
      for (int r = 0; r < size_; ++r) {
        if (r == rank_) continue;
        const float* theirs = of(r, data) + at;
        for (std::size_t i = 0; i < n; ++i) sum[i] += theirs[i];
      }
      for (int r = 0; r < size_; ++r) {
        if (r == rank_ || everywhere) {
          std::memcpy((r == rank_ ? out : of(r, out)) + at, sum, n * sizeof(float));
        }
      }
    }
  }

  Shared& shared_;
  std::byte* arenas_;
  const int rank_, size_;
  bool yields_ = false;
  std::size_t used_ = 0;
  std::uint32_t barriers_ = 0, tinies_ = 0;
  alignas(64) float sum_[4096];
};

void* map(std::size_t bytes) {
  void* const place = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                           MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (place == MAP_FAILED) std::exit(1);
  return place;
}

}  // namespace

int main(int argc, char** argv) {
  const char* ranks = std::getenv("RIVALS_RANKS");
  const int size = ranks == nullptr ? 2 : std::clamp(std::atoi(ranks), 1, 64);
  auto* shared = new (map(sizeof(Shared))) Shared;
  auto* arenas = static_cast<std::byte*>(map(kArena * std::size_t(size)));
  std::vector<pid_t> children;
  int rank = 0;
  for (int r = 1; r < size && rank == 0; ++r) {
    const pid_t child = fork();
    if (child == 0) rank = r;
    children.push_back(child);
  }
  rivals::bind_if_asked(rank);
  Reference reference(*shared, arenas, rank, size);
  const int code = rivals::measure(reference, argc, argv);
  for (std::size_t i = 0; rank == 0 && i < children.size(); ++i) waitpid(children[i], nullptr, 0);
  return code;
}

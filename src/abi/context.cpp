// Copyright The Farandole Authors
// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <utility>

#include "abi/convert.hpp"
#include "abi/handles.hpp"

using namespace farandole;
using namespace farandole::abi;

farandole_status farandole_init(farandole_context** context) {
  const char* const call = __func__;
  return guarded(call, [&]() -> Result<void> {
    if (auto valid = check_target(call, "context", context); !valid) return valid;
    auto joined = Context::from_environment();
    if (!joined) return joined.error();
    make_handle(context, *std::move(joined));
    return {};
  });
}

farandole_status farandole_finalize(farandole_context* context) {
  return release(__func__, "context", context);
}

farandole_status farandole_get_ranks(const farandole_context* context, farandole_ranks* ranks) {
  const char* const call = __func__;
  return guarded(call, [&]() -> Result<void> {
    if (auto valid = check_handle(call, "context", context); !valid) return valid;
    const Context& of = *context->value;
    const farandole_ranks known{.rank = of.rank().value(),
                                .size = of.size(),
                                .local_rank = of.local_rank(),
                                .local_size = of.local_size(),
                                .cross_rank = of.cross_rank(),
                                .cross_size = of.cross_size()};
    return write_ranks(call, known, ranks);
  });
}

farandole_status farandole_allocate(farandole_context* context, size_t bytes,
                                    farandole_memory** memory, void** data) {
  const char* const call = __func__;
  return guarded(call, [&]() -> Result<void> {
    if (auto valid = check_target(call, "memory", memory); !valid) return valid;
    if (auto valid = check_target(call, "data", data); !valid) return valid;
    if (auto valid = check_handle(call, "context", context); !valid) return valid;
    auto allocated = context->value->allocate(Bytes{bytes});
    if (!allocated) return allocated.error();
    void* const start = allocated->get();
    make_handle(memory, *std::move(allocated));
    *data = start;
    return {};
  });
}

farandole_status farandole_memory_release(farandole_memory* memory) {
  return release(__func__, "memory", memory);
}

farandole_status farandole_world(farandole_context* context, farandole_communicator** world) {
  const char* const call = __func__;
  return guarded(call, [&]() -> Result<void> {
    if (auto valid = check_target(call, "world", world); !valid) return valid;
    if (auto valid = check_handle(call, "context", context); !valid) return valid;
    make_handle(world, context->value->world());
    return {};
  });
}

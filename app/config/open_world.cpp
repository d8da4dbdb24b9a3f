#include <exception>
#include <string>
#include <utility>

#include "config/open.hpp"
#include "espalier/error.hpp"

namespace espalier::app {

OpenRecipe open_recipe(RecipeRequest request, Communicator& world) {
  request.world = world.size();
  OpenRecipe opened;
  std::string problem;
  int code = 0;
  std::exception_ptr own;
  try {
    opened = open_recipe(std::as_const(request));
  } catch (const Error& error) {
    own = std::current_exception();
    problem = error.what();
    code = static_cast<int>(error.exit_code());
  }
  // A world of one keeps the class of its own error.
  if (world.size() == 1 && own != nullptr) std::rethrow_exception(own);
  agree(world, code, problem);
  opened.plugins->agree_on(world);
  return opened;
}

}  // namespace espalier::app

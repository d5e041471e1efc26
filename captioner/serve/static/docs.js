// Shows the description of the HTTP interface by Swagger UI, from this server alone.

SwaggerUIBundle({
  url: "api/openapi.json",
  dom_id: "#docs",
  defaultModelRendering: "model",
  supportedSubmitMethods: [], // Its forms send made-up values for fields left out, and no files.
  validatorUrl: null,
});
